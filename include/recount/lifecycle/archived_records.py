"""Records of an archive whose key is erased: place and time stay, key, value and headers go.

Which offsets there were stays known, so that the archive has no hole. No audit reads them again: every stream that
reads the topic has been erased from behind them, and its audits begin there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from recount.audit.carry.delta_frames import purge_files
from recount.audit.carry.erased_keys import ErasedKeys
from recount.audit.cut.audited_ledger import Ledger
from recount.declare.groups import Archive
from recount.declare.operators.keys_and_fields import raw_key
from recount.declare.registry import is_audited
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.formats.record_decoder import KeyColumns
from recount.lifecycle.erasing import KeyErasure
from recount.runtime.errors import Terminal
from recount.tables.batch_proofs import Proofs
from recount.tables.ledger import BatchProof
from recount.tables.signed_orders import Erasure

ERASED = "erased"
"""The column that marks such a record: true, or null."""
_AT_ONCE = 1_000
_GONE = {"key": "arrow_cast(NULL, 'Binary')", "value": "arrow_cast(NULL, 'Binary')", "headers": "NULL", ERASED: "true"}


@dataclass(frozen=True, kw_only=True)
class ArchiveErasure(KeyErasure):
    """The erasure from an archive; ``readers`` are all audited topologies that read its topic."""

    declared: Archive
    readers: tuple[Topology, ...]

    def counts(self) -> dict[str, int]:
        found = len(self.places())
        return {f"archive/{self.declared.topic.name}": found} if found else {}

    def places(self) -> list[tuple[int, int]]:
        if not DeltaTable.is_deltatable(self._path):
            return []
        name = self.declared.topic.name
        # the key may be text to one reader and bytes to another
        read = [one.topic for reader in self.readers for one in reader.sources if one.topic.name == name]
        wanted = {key for topic in (self.declared.topic, *read) for key in self._keys(topic)}
        mine = pl.scan_delta(self._path).filter(pl.col("key").is_in([*wanted]))
        found: list[tuple[int, int]] = mine.select("partition", "offset").sort("partition", "offset").collect().rows()
        return found

    def _complete(self, begun: Erasure) -> Erasure:
        places, table = self.places(), DeltaTable(self._path)
        if ERASED not in {field.name for field in table.schema().fields}:
            table.alter.add_columns([Field(ERASED, PrimitiveType("boolean"))])
        for start in range(0, len(places), _AT_ONCE):
            # offsets, not the key: commits of an archive are its ledger, and stay for ever
            DeltaTable(self._path).update(updates=_GONE, predicate=_named(places[start : start + _AT_ONCE]))
        self.observer("tables")
        purge_files(self._path)
        self.observer("files")
        return begun

    def _behind(self) -> Mapping[str, Any]:
        last = self._last
        if last is None:
            raise Terminal.of("archive-without-a-batch", given=self._path)
        return {"generation": last.generation, "batch": last.batch, "audit": None}

    def is_read_by(self, reader: Topology) -> bool:
        """Whether audits of ``reader`` would still read one of these records: it is behind its newest erasure."""
        return self._reach_beyond(self._erased_up_to(reader))

    def _hindrances(self) -> Iterator[str]:
        topic, mine = self.declared.topic.name, {} if self._last is None else self._last.ends
        for reader in self.readers:
            ends = self._erased_up_to(reader)
            if self._reach_beyond(ends):
                last = Ledger.newest(self._tables, reader.name)
                ends = {} if last is None else {at: end for (name, at), end in last.ends.items() if name == topic}
            if self._reach_beyond(ends):
                yield (
                    f"{reader.name} has not read all records of the key that {self.name} has: start it, let it"
                    f" read on, stop it, then run `recount audit --stream {reader.name}`"
                )
            if any(end > mine.get((topic, partition), 0) for partition, end in ends.items()):
                yield f"{self.name} is behind {reader.name}: start it, let it read on, and stop it"

    def _erased_up_to(self, reader: Topology) -> dict[int, int]:
        newest = ErasedKeys.of(self.settings, reader.name).newest
        offsets = {} if newest is None else newest.offsets.get(self.declared.topic.name, {})
        return {int(partition): end for partition, end in offsets.items()}

    def _reach_beyond(self, ends: Mapping[int, int]) -> bool:
        return any(offset >= ends.get(partition, 0) for partition, offset in self.places())

    def _keys(self, topic: Topic) -> list[bytes]:
        """The keys of records of which rows have the key to erase: one, or as many as say the same of their fields."""
        if not topic.key_fields:
            found = raw_key(topic, self.order.key)
            return [] if found is None else [found]
        there = pl.scan_delta(self._path).select("key").drop_nulls().unique().collect()["key"].to_list()
        _, texts = KeyColumns(topic).decode(there)
        return [key for key, text in zip(there, texts.to_pylist(), strict=True) if text == self.order.key]

    @property
    def _last(self) -> BatchProof | None:
        return Proofs(state=self._path).newest()

    @property
    def _path(self) -> str:
        return self._tables.archive(self.declared.topic.name)


def readers_of(archive: Archive, topologies: Iterable[Topology]) -> tuple[Topology, ...]:
    """The topologies that read the archived topic, and whose audits read the archive."""
    read_by = (one for one in topologies if archive.topic.name in {source.topic.name for source in one.sources})
    return tuple(filter(is_audited, read_by))


def _named(places: Sequence[tuple[int, int]]) -> str:
    by_partition: dict[int, list[int]] = {}
    for partition, offset in places:
        by_partition.setdefault(partition, []).append(offset)
    return " OR ".join(
        f"(partition = {partition} AND offset IN ({', '.join(map(str, offsets))}))"
        for partition, offsets in by_partition.items()
    )
