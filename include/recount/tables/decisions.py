"""Decisions about a stream, without Spark: declarations in force, records set aside, erasures, acceptances.

``declarations/<stream>`` gets a row when a stream first starts, is reset or upgraded; the last one is in force. It has
the canonical document of the declaration, so that another one can be compared with it in words without its code.

``set-aside`` and ``erasures`` hold orders; ``acceptances`` is only read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import msgspec
import polars as pl
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from recount.certificate.finding import Acceptance
from recount.declare.changes import Additions, changes
from recount.declare.fingerprint import Declared, Document
from recount.declare.windows import SHORTEST_REACH_MS
from recount.runtime.errors import Terminal
from recount.runtime.times import clock_ms, told_time
from recount.tables.ledger import BatchProof
from recount.tables.places import Tables
from recount.tables.signed_orders import AsideOrder, Erasure, SignedRecord

Kind = Literal["first", "found", "reset begun", "reset", "upgrade", "retired"]
"""``found``: the stream had batches before its declarations were recorded."""
Offsets = Mapping[str, Mapping[int, int]]
"""By topic and partition."""
_WRITER = "recount/declarations"
_LOG = logging.getLogger(__name__)


class OtherDeclaration(Terminal):
    """A stream whose declaration does not mean what the one means by which its state was made."""


@dataclass(frozen=True, kw_only=True)
class Enacted:
    """A declaration and since when it is in force.

    ``version`` counts the resets of the stream from 1. A version reads from ``begins`` on (None: from the beginning of
    the log); ``published`` is where the topics that it writes ended when it began: what is before is not its own.
    An upgrade holds for the batches ``after`` (generation, batch). ``closed_ms`` is the frontier at which, by the
    declaration in force, every window is closed that was closed before the upgrade. ``added`` are the topics of the
    sinks that upgrades of this version have added, each with the last batch before it, ``added_fields`` the fields that
    they have added by the topic that is read.
    """

    sequence: int
    kind: Kind
    version: int
    fingerprint: str
    document: Document
    recorded_ms: int
    begins: Offsets | None = None
    published: Offsets = field(default_factory=dict)
    after: tuple[int, int] | None = None
    closed_ms: int | None = None
    added: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    added_fields: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Enacted:
        return msgspec.json.decode(text, type=cls)

    @property
    def additions(self) -> Additions:
        """Additions by upgrades of this version."""
        by_topic = {topic: frozenset(names) for topic, names in self.added_fields.items()}
        return Additions(sinks=frozenset(self.added), fields=by_topic)

    @property
    def starts(self) -> dict[tuple[str, int], int] | None:
        if self.begins is None:
            return None
        return {(topic, part): offset for topic, parts in self.begins.items() for part, offset in parts.items()}


class DeclarationLog:
    """The declarations of ``stream`` below ``root``, in the order in which they came into force."""

    def __init__(self, root: str, stream: str) -> None:
        self._path = Tables(root).declarations(stream)
        self.stream = stream

    def all(self) -> list[Enacted]:
        """Every row, oldest first."""
        if not DeltaTable.is_deltatable(self._path):
            return []
        texts = DeltaTable(self._path).to_pyarrow_table().column("document").to_pylist()
        return sorted(map(Enacted.from_json, texts), key=lambda one: one.sequence)

    def last(self) -> Enacted | None:
        """The declaration in force; None before the first start."""
        return next(reversed(self.all()), None)

    def version(self) -> int:
        """The version of the stream that is in force; 1 before the first start."""
        last = self.last()
        return last.version if last else 1

    def enact(self, kind: Kind, declared: Declared, **more: Any) -> Enacted:
        """Append ``declared`` as the one in force; ``more`` are fields of ``Enacted``."""
        before = self.last()
        new = Enacted(
            sequence=before.sequence + 1 if before else 0,
            kind=kind,
            fingerprint=declared.fingerprint,
            document=declared.document,
            recorded_ms=clock_ms(),
            **{"version": before.version if before else 1, **more},
        )
        write_deltalake(
            self._path,
            pa.table({"sequence": [new.sequence], "document": [new.to_json()]}),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(_WRITER, new.sequence)]),
        )
        return new

    def admit(self, declared: Declared, last: BatchProof | None) -> Enacted:
        """The row by which a stream goes that is declared as ``declared`` and whose ledger ends with ``last``.

        Writes the row of a first start. Raises ``OtherDeclaration`` where the stream's state was made by another one.
        """
        self.require(declared, last)
        known = self.last()
        return known or self.enact("first" if last is None else "found", declared)

    def require(self, declared: Declared, last: BatchProof | None) -> None:
        """The same, but nothing is written."""
        known = self.last()
        if known is None:
            self._require_fingerprint(declared, last)
            return
        if known.kind == "reset begun":
            raise OtherDeclaration.of("reset-unfinished", given=f"version {known.version}", stream=self.stream)
        if known.kind == "retired":
            raise OtherDeclaration.of("stream-retired", given=f"at {told_time(known.recorded_ms)}", stream=self.stream)
        if known.fingerprint != declared.fingerprint:
            raise other_declaration(self.stream, known.document, declared)
        made_before = known.after is not None and last is not None and last.order <= known.after
        if not made_before:
            self._require_fingerprint(declared, last)

    def _require_fingerprint(self, declared: Declared, last: BatchProof | None) -> None:
        if last is None or last.fingerprint in (None, declared.fingerprint):
            return
        raise OtherDeclaration.of(
            "batches-of-another-declaration",
            given=f"fingerprint {last.fingerprint} in batch {last.generation}/{last.batch}",
            stream=self.stream,
            fingerprint=declared.fingerprint,
            remedy=_remedy(self.stream),
        )


def other_declaration(stream: str, known: Document, declared: Declared) -> OtherDeclaration:
    """The error that says how ``declared`` differs from the declaration ``known``, by which the stream's state is."""
    found = changes(known, declared.document)
    was_default = any(one.path == "windows.reach_ms" and one.old == SHORTEST_REACH_MS for one in found)
    as_before = ", in which reach='1 h' was the default of sessions" if was_default else ""
    return OtherDeclaration.of(
        "declaration-changed",
        given=f"fingerprint {declared.fingerprint}",
        stream=stream,
        found="; ".join(map(str, found)),
        as_before=as_before,
        remedy=_remedy(stream),
    )


def _remedy(stream: str) -> str:
    return (
        f"`recount reset {stream}` makes a new version of the stream (--from beginning or --from now); `recount upgrade"
        f" {stream}` goes on with its state, where the change keeps it; or deploy the former declaration again"
    )


class OrderLog:
    """Signed records of ``stream`` in the table at ``path``, one a row; who may write to it can forge one.

    Audits name forged records (``audit.carry.erased_keys``).
    """

    def __init__(self, path: str, stream: str) -> None:
        self._path = path
        self.stream = stream

    def append(self, record: SignedRecord) -> None:
        named = {name: [value] for name, value in record.identity.items() if name != "is"}
        write_deltalake(self._path, pa.table({**named, "document": [record.to_json()]}), mode="append")

    def texts(self) -> list[str]:
        if not DeltaTable.is_deltatable(self._path):
            return []
        return [str(text) for text in DeltaTable(self._path).to_pyarrow_table().column("document").to_pylist()]


class AsideLog(OrderLog):
    """The orders of ``stream`` below ``root`` to set records aside."""

    def __init__(self, root: str, stream: str) -> None:
        super().__init__(Tables(root).set_aside(stream), stream)

    def orders(self, version: int) -> list[AsideOrder]:
        """The orders of ``version`` of the stream, oldest first; what is none is passed over with a warning."""
        found = []
        for text in self.texts():
            try:
                one = AsideOrder.from_json(text)
            except Terminal as fault:
                _LOG.warning("ignored a row of the table set-aside/%s: %s", self.stream, fault)
                continue
            if one.holds and one.stream == self.stream and one.version == version:
                found.append(one)
        return sorted(found, key=lambda one: one.at_ms)

    def offsets(self, version: int) -> Mapping[tuple[str, int], frozenset[int]]:
        """The offsets that a driver of ``version`` sets aside, by topic and partition."""
        return offsets_of(self.orders(version))


def offsets_of(orders: Iterable[AsideOrder]) -> dict[tuple[str, int], frozenset[int]]:
    found: dict[tuple[str, int], frozenset[int]] = {}
    for one in orders:
        place = one.topic, one.partition
        found[place] = found.get(place, frozenset()) | {one.offset}
    return found


class ErasureLog(OrderLog):
    """The erasures of ``stream`` below ``root``."""

    def __init__(self, root: str, stream: str) -> None:
        super().__init__(Tables(root).erasures(stream), stream)

    def require_finished(self) -> None:
        """Raise ``Terminal`` while an erasure of the stream has begun and is not done.

        A record that cannot be read, or that nobody has signed, counts too: a start that is refused harms nothing.
        """
        known = [Erasure.from_json(text) for text in self.texts()]
        left = unfinished(known)
        if left is not None:
            raise not_finished(left)


def unfinished(records: Sequence[Erasure]) -> Erasure | None:
    """The first erasure among ``records`` that has begun and is not done."""
    done = {one.erasure for one in records if one.state == "done"}
    return next((one for one in records if one.erasure not in done), None)


def not_finished(erasure: Erasure) -> Terminal:
    """The error for an erasure that was killed."""
    return Terminal.of("erasure-unfinished", given=f"{erasure.erasure}, begun by {erasure.by}", stream=erasure.stream)


def acceptances(tables: Tables, stream: str) -> list[Acceptance]:
    path = tables.acceptances(stream)
    if not DeltaTable.is_deltatable(path):
        return []
    return [Acceptance(**row) for row in pl.scan_delta(path).collect().to_dicts()]
