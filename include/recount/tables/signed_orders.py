"""Records of what a person did to a stream: orders to set a record aside, and erasures of a key.

Each carries its own SHA-256 and, where the installation has a key that signs, a signature.

An order to set aside is given while the stream stands still, for a record that no batch has committed. From the next
batch on the record is a bad record at intake, in the stream and in the recompute alike.

An erasure names its key by a salted hash only. It is between two batches: after the last batch that its audit judged.
It has two records. ``begun`` is written before the first row is removed, ``done`` after the last file is; between the
two neither driver nor audit may begin.
"""

import hashlib
import json
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self

from recount.certificate.document import canonical, content_hash
from recount.runtime.errors import Terminal

SET_ASIDE_FORMAT = "recount set-aside 1"
SET_ASIDE = "set-aside"
"""The reason of its dead letter."""
_PLACE = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d{1,9})@(?P<offset>\d{1,18})")
ERASURE_FORMAT = "recount erasure 1"
State = Literal["begun", "done"]
_SALT_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class SignedRecord(ABC):
    """A record of the ``version`` of ``stream``, which counts its resets; ``key_id`` names the key that signs it."""

    format: ClassVar[str]
    stream: str
    version: int
    at_ms: int
    by: str
    key_id: str | None = None
    sha256: str = ""
    signature: str | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the order where it is rejected."""

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, str]:
        """Its format, and which record of the stream it is: beside the SHA-256 what the signature is made over."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The record in ``text``; raises ``Terminal`` where it is none."""
        try:
            record = cls(**json.loads(text))
            numbers = [one.name for one in fields(cls) if one.type is int]
            if not all(type(getattr(record, name)) is int for name in numbers):
                raise TypeError(f"{', '.join(numbers)} are whole numbers")
            return record
        except (ValueError, TypeError, RecursionError) as error:
            raise Terminal.of("no-signed-record", given=text[:200], format=cls.format) from error

    @property
    def signed(self) -> bytes:
        """The bytes that are signed; they cannot be taken for those of a record or certificate of another format."""
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
        return asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_document(), sort_keys=True, ensure_ascii=False)


@dataclass(frozen=True, kw_only=True)
class RecordPlace:
    """The place of a record, as all pages write it: ``topic-partition@offset``."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The place in ``text``; raises ``Terminal`` where it names none."""
        found = _PLACE.fullmatch(text)
        if found is None:
            raise Terminal.of("no-place-of-a-record", given=text)
        return cls(topic=found["topic"], partition=int(found["partition"]), offset=int(found["offset"]))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


def set_aside_command(stream: str, place: RecordPlace | str) -> str:
    """The command that sets the record at ``place`` aside, as errors name it."""
    return f"`recount set-aside {stream} {place} --by NAME --because TEXT`"


@dataclass(frozen=True, kw_only=True)
class AsideOrder(SignedRecord):
    """Who set which record of ``stream`` aside, when and why; it holds for the ``version`` of the stream only."""

    format = SET_ASIDE_FORMAT
    topic: str
    partition: int
    offset: int
    because: str

    @property
    def place(self) -> RecordPlace:
        return RecordPlace(topic=self.topic, partition=self.partition, offset=self.offset)

    @property
    def name(self) -> str:
        return str(self.place)

    @property
    def identity(self) -> Mapping[str, str]:
        return {"is": SET_ASIDE_FORMAT, "place": str(self.place)}


@dataclass(frozen=True, kw_only=True)
class Erasure(SignedRecord):
    """One record: ``stream`` forgot a key after the batch (``generation``, ``batch``), which ``audit`` had judged last.

    ``offsets`` are by topic and partition up to where the stream had read. ``counts`` are the removed rows by table.
    ``backfills`` are so many that were published until then. ``snapshot_before`` and ``snapshot_after`` are the SHA-256
    of the snapshot that the next audit goes on from, ``run_sha256`` that of the audit's row in ``runs``, which has the
    new checksums of all tables; a ``begun`` record knows the first of them only.
    An archive is not audited: its records have no ``audit``, and no SHA-256 of any.
    """

    format = ERASURE_FORMAT
    erasure: str
    state: State
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
        return key_sha256(self.salt, key) == self.key_sha256

    @property
    def name(self) -> str:
        return f"{self.erasure} {self.state}"

    @property
    def identity(self) -> Mapping[str, str]:
        return {"is": ERASURE_FORMAT, "erasure": self.erasure}


def new_salt() -> str:
    """A salt of 128 bits, so that equal keys have other hashes in other erasures."""
    return secrets.token_hex(_SALT_BYTES)


def key_sha256(salt: str, key: str) -> str:
    """The hash by which a record names ``key``."""
    return hashlib.sha256(f"{salt}:{key}".encode()).hexdigest()
