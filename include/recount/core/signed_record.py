"""What the records have in common that say what a person did to a stream: erasures, orders to set a record aside.

Each carries its own SHA-256 and, where the installation has a key that signs, a signature.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from recount.core.certificate import canonical, content_hash


@dataclass(frozen=True, kw_only=True)
class SignedRecord(ABC):
    """A record of ``stream``; ``key_id`` names the key that signs it."""

    stream: str
    key_id: str | None = None
    sha256: str = ""
    signature: str | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called where it is not believed."""

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, str]:
        """Its format, and which record of the stream it is: beside the SHA-256 what the signature is made over."""

    @property
    def signed(self) -> bytes:
        """What the signature is made over; it cannot be taken for that of a record or certificate of another format."""
        return canonical({**self.identity, "stream": self.stream, "sha256": self.sha256})

    @property
    def holds(self) -> bool:
        """Whether the SHA-256 is that of the record."""
        return self.sha256 == content_hash(self.to_document())

    def hashed(self, key_id: str | None) -> Self:
        """The record with its SHA-256, to be signed with the key ``key_id`` (None: with none)."""
        named = replace(self, key_id=key_id, signature=None)
        return replace(named, sha256=content_hash(named.to_document()))

    def to_document(self) -> dict[str, Any]:
        """The record as JSON has it."""
        return asdict(self)

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_document(), sort_keys=True, ensure_ascii=False)
