"""The record of an erasure: one key that a stream and its audits have forgotten, named by a salted hash only.

An erasure lies between two batches: after the last batch that its audit judged. It has two records. ``begun`` is
written before the first row goes, ``done`` after the last file is gone; between the two neither driver nor audit may
begin.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from recount.core.errors import Terminal
from recount.core.signed_record import SignedRecord

FORMAT = "recount erasure 1"
State = Literal["begun", "done"]
_SALT_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class Erasure(SignedRecord):
    """One record: ``stream`` forgot a key after the batch (``generation``, ``batch``), which ``audit`` had judged last.

    ``version`` is the stream's, which counts its resets. ``offsets`` are by topic and partition up to where the stream
    had read. ``counts`` are the removed rows by table. ``backfills`` are so many that were published until then.
    ``snapshot_before`` and ``snapshot_after`` are the SHA-256 of what the next audit goes on from, ``run_sha256`` that
    of the audit's row in ``runs``, which has the new checksums; a ``begun`` record knows the first of them only.
    An archive is not audited: its records have no ``audit``, and no SHA-256 of any.
    """

    erasure: str
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

    @property
    def order(self) -> tuple[int, int]:
        """The batch after which the key is forgotten."""
        return self.generation, self.batch

    def is_of(self, key: str) -> bool:
        """Whether this is the erasure of ``key``."""
        return key_sha256(self.salt, key) == self.key_sha256

    @property
    def name(self) -> str:
        """Erasure and state."""
        return f"{self.erasure} {self.state}"

    @property
    def identity(self) -> Mapping[str, str]:
        """By the erasure."""
        return {"is": FORMAT, "erasure": self.erasure}

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
