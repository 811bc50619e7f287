"""Records of an archive whose key is erased: place and time stay, key, value and headers go.

Which offsets there were stays known, so that the archive has no hole. No audit reads them again: every stream that
reads the topic has been audited behind them, and its audits begin there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import polars as pl
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from recount.audit.carry.delta_frames import purge_files
from recount.declare.groups import Archive
from recount.declare.operators.keys_and_fields import raw_key
from recount.declare.registry import is_audited
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.formats.record_decoder import KeyColumns
from recount.kafka.connection import Connection
from recount.lifecycle.erasure.erasing import Order, Step, record, unobserved
from recount.lifecycle.erasure.hindrances import signing_hindrance
from recount.lifecycle.reset import require_no_driver, standstill
from recount.runtime.errors import RecountError, Terminal
from recount.runtime.settings import Settings
from recount.tables.batch_proofs import Proofs
from recount.tables.decisions import DeclarationLog, ErasureLog, not_finished, unfinished
from recount.tables.ledger import BatchProof
from recount.tables.places import Tables
from recount.tables.signed_orders import Erasure, key_sha256, new_salt

ERASED = "erased"
"""The column that marks such a record: true, or null."""
_AT_ONCE = 1_000
_GONE = {
    "key": "arrow_cast(NULL, 'Binary')",
    "value": "arrow_cast(NULL, 'Binary')",
    "headers": "NULL",
    ERASED: "true",
}
Ends = Mapping[str, Mapping[str, int]]
"""By topic and partition, as ``Erasure.offsets``."""


@dataclass(frozen=True, kw_only=True)
class ArchiveErasure:
    """The erasure that ``order`` asks for, from ``archive``; ``readers`` are all topologies that read its topic."""

    settings: Settings
    archive: Archive
    readers: tuple[Topology, ...]
    order: Order
    observer: Callable[[Step], None] = unobserved

    def places(self) -> list[tuple[int, int]]:
        """Partition and offset of the records that have the key."""
        path = self._path
        if not DeltaTable.is_deltatable(path):
            return []
        wanted = {key for topic in self._topics() for key in self._keys(topic)}
        mine = pl.scan_delta(path).filter(pl.col("key").is_in([*wanted]))
        found: list[tuple[int, int]] = mine.select("partition", "offset").sort("partition", "offset").collect().rows()
        return found

    def _topics(self) -> Iterator[Topic]:
        """The archive's topic as each of its readers declares it: the key may be text to one and bytes to another."""
        yield self.archive.topic
        for reader in self.readers:
            yield from (one.topic for one in reader.sources if one.topic.name == self.archive.topic.name)

    def _keys(self, topic: Topic) -> list[bytes]:
        """The keys of records of which rows have the key to erase: one, or as many as say the same of their fields."""
        if not topic.key_fields:
            found = raw_key(topic, self.order.key)
            return [] if found is None else [found]
        there = pl.scan_delta(self._path).select("key").drop_nulls().unique().collect()["key"].to_list()
        _, texts = KeyColumns(topic).decode(there)
        return [key for key, text in zip(there, texts.to_pylist(), strict=True) if text == self.order.key]

    @property
    def is_begun(self) -> bool:
        """Whether an erasure of this key was begun here and is not done."""
        left = self._unfinished()
        return left is not None and left.is_of(self.order.key)

    def uncovered(self, ends: Ends) -> bool:
        """Whether audits that begin at ``ends`` would still read one of these records."""
        mine = ends.get(self.archive.topic.name, {})
        return any(offset >= mine.get(str(partition), 0) for partition, offset in self.places())

    def hindrances(self, ends_of: Mapping[str, Ends]) -> list[str]:
        """Hindrances, where audits of the readers begin at ``ends_of`` after their own erasure."""
        left = self._unfinished()
        if left is not None:
            return [] if left.is_of(self.order.key) else [str(not_finished(left))]
        try:
            require_no_driver(Connection.of(self.settings), self.archive)
        except RecountError as refusal:
            return [str(refusal)]
        topic = self.archive.topic.name
        found = [one for one in [signing_hindrance(self.settings)] if one]
        last = self._last()
        reached = {} if last is None else {str(part.partition): part.end for part in last.partitions}
        for reader in self.readers:
            ends = ends_of.get(reader.name, {})
            if self.uncovered(ends):
                found.append(
                    f"{reader.name} has not read all records of the key that {self.archive.name} has: start it, let it"
                    f" read on, stop it, then run `recount audit --stream {reader.name}`"
                )
            if any(end > reached.get(partition, 0) for partition, end in ends.get(topic, {}).items()):
                found.append(f"{self.archive.name} is behind {reader.name}: start it, let it read on, and stop it")
        return found

    def run(self) -> Erasure:
        """Erase, or complete what a killed run has begun; ``hindrances`` has been asked."""
        with standstill(Connection.of(self.settings), self.archive):
            begun = self._unfinished() or self._begin()
            self.observer("begun")
            places = self.places()
            table = DeltaTable(self._path)
            if ERASED not in {field.name for field in table.schema().fields}:
                table.alter.add_columns([Field(ERASED, PrimitiveType("boolean"))])
            for start in range(0, len(places), _AT_ONCE):
                # offsets, not the key: commits of an archive are its ledger, and stay for ever
                DeltaTable(self._path).update(updates=_GONE, predicate=_named(places[start : start + _AT_ONCE]))
            self.observer("tables")
            purge_files(self._path)
            self.observer("files")
            done = record(self.settings, replace(begun, state="done"))
            self.observer("done")
            return done

    def _begin(self) -> Erasure:
        last = self._last()
        if last is None:
            raise Terminal(
                "an archive without a batch",
                given=self._path,
                expected="a table that its stream has made",
                remedy="restore the whole table, its _delta_log included, from a backup",
            )
        salt, at_ms = new_salt(), time.time_ns() // 1_000_000
        begun = Erasure(
            erasure=f"{self.archive.name}-{at_ms}",
            stream=self.archive.name,
            state="begun",
            version=DeclarationLog(self.settings.data, self.archive.name).version(),
            at_ms=at_ms,
            by=self.order.by,
            reason=self.order.reason,
            generation=last.generation,
            batch=last.batch,
            audit=None,
            salt=salt,
            key_sha256=key_sha256(salt, self.order.key),
            counts={f"archive/{self.archive.topic.name}": len(self.places())},
        )
        return record(self.settings, begun)

    def _last(self) -> BatchProof | None:
        newest = next(Proofs(state=self._path).newest_first(), None)
        return None if newest is None else newest.proof

    def _unfinished(self) -> Erasure | None:
        texts = ErasureLog(self.settings.data, self.archive.name).texts()
        return unfinished([Erasure.from_json(text) for text in texts])

    @property
    def _path(self) -> str:
        return Tables(self.settings.data).archive(self.archive.topic.name)


def readers_of(archive: Archive, topologies: Iterable[Topology]) -> tuple[Topology, ...]:
    """The topologies that read the archived topic, and whose audits read the archive."""
    read_by = (one for one in topologies if archive.topic.name in {source.topic.name for source in one.sources})
    return tuple(filter(is_audited, read_by))


def _named(places: list[tuple[int, int]]) -> str:
    by_partition: dict[int, list[int]] = {}
    for partition, offset in places:
        by_partition.setdefault(partition, []).append(offset)
    return " OR ".join(
        f"(partition = {partition} AND offset IN ({', '.join(map(str, offsets))}))"
        for partition, offsets in by_partition.items()
    )
