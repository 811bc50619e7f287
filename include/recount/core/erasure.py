"""The record of an erasure: one key that a stream and its audits have forgotten, named by a salted hash only.

An erasure lies between two batches: after the last batch that its audit judged. It has two records. ``begun`` is
written before the first row goes, ``done`` after the last file is gone; between the two neither driver nor audit may
begin. Both carry their own SHA-256 and, where the installation has a key that signs, a signature.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from recount.core.errors import Terminal

FORMAT = "recount erasure 1"
State = Literal["begun", "done"]
_UNHASHED = ("sha256", "signature")
_SALT_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class Erasure:
    """One record: ``stream`` forgot a key after the batch (``generation``, ``batch``), which ``audit`` had judged last.

    ``version`` is the stream's, which counts its resets. ``offsets`` are by topic and partition up to where the stream
    had read. ``counts`` are the removed rows by table. ``backfills`` are so many that were published until then.
    ``snapshot_before`` and ``snapshot_after`` are the SHA-256 of what the next audit goes on from, ``run_sha256`` that
    of the audit's row in ``runs``, which has the new checksums; a ``begun`` record knows the first of them only.
    An archive is not audited: its records have no ``audit``, and no SHA-256 of any.
    """

    erasure: str
    stream: str
    state: State
    version: int
    at_ms: int
    by: str
    reason: str
    generation: int
    batch: int
    audit: str | None
    salt: str
    key_sha256: str
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    backfills: int = 0
    snapshot_before: str | None = None
    snapshot_after: str | None = None
    run_sha256: str | None = None
    key_id: str | None = None
    sha256: str = ""
    signature: str | None = None

    @property
    def order(self) -> tuple[int, int]:
        """The batch after which the key is forgotten."""
        return self.generation, self.batch

    def is_of(self, key: str) -> bool:
        """Whether this is the erasure of ``key``."""
        return key_sha256(self.salt, key) == self.key_sha256

    def hashed(self, key_id: str | None) -> Self:
        """The record with its SHA-256, to be signed with the key ``key_id`` (None: with none)."""
        named = replace(self, key_id=key_id, signature=None)
        return replace(named, sha256=content_hash(named.to_document()))

    @property
    def holds(self) -> bool:
        """Whether the SHA-256 is that of the record."""
        return self.sha256 == content_hash(self.to_document())

    def to_document(self) -> dict[str, Any]:
        """The record as JSON has it."""
        return asdict(self)

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_document(), sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The record in ``text``; raises ``Terminal`` where it is none."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError, RecursionError) as error:
            raise Terminal(
                "no record of an erasure", given=text[:200], expected=FORMAT, remedy="see who can write to the table"
            ) from error


def new_salt() -> str:
    """A salt of 128 bits, so that equal keys have other hashes in other erasures."""
    return secrets.token_hex(_SALT_BYTES)


def key_sha256(salt: str, key: str) -> str:
    """The hash by which a record names ``key``."""
    return hashlib.sha256(f"{salt}:{key}".encode()).hexdigest()


def content_hash(document: Mapping[str, Any]) -> str:
    """The SHA-256 of a record without its ``sha256`` and ``signature``."""
    told = {name: part for name, part in document.items() if name not in _UNHASHED}
    return hashlib.sha256(_canonical(told)).hexdigest()


def signed(erasure: Erasure) -> bytes:
    """What the signature is made over. It cannot be taken for that of a certificate, which says another format."""
    return _canonical({"is": FORMAT, "stream": erasure.stream, "erasure": erasure.erasure, "sha256": erasure.sha256})


def _canonical(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
