"""The fields of good records, kept as columns, and what the stateless steps make of each record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from recount.codec.record_decoder import RecordDecoder
from recount.core.fields_read import columns_read
from recount.core.interpreter.clock import Clock
from recount.core.interpreter.journal import Journal
from recount.core.interpreter.record import Entry, Record
from recount.core.interpreter.stateless import StatelessOperator
from recount.core.record_keys import topics_needing_a_key
from recount.core.stateless import Repartition
from recount.lens.modelled import Modelled
from recount.lens.raw_log_reading import Records
from recount.lens.stretch import Longs


@dataclass(frozen=True, kw_only=True)
class _Part:
    offsets: Longs
    columns: Mapping[str, pa.Array]
    keys: list[str | None]
    is_null: list[bool]


class DecodedFields:
    """The records that were taken; those that are asked for again go through the steps again."""

    def __init__(self, modelled: Modelled) -> None:
        self._topic, self._key = modelled.source.topic, modelled.source.key
        self._is_key_needed = self._topic.name in topics_needing_a_key(modelled.topology)
        self._parts: dict[int, list[_Part]] = {}
        self._journal = Journal()
        self._decoder = RecordDecoder(self._topic, columns_read(modelled.topology, self._topic))
        clock = Clock([self._topic.name])
        self._steps = [
            StatelessOperator(node=step, clock=clock, journal=self._journal)
            for step in modelled.steps
            if not isinstance(step, Repartition)
        ]

    def take(self, records: Records, latest_ms: list[int]) -> Iterator[tuple[int, int, list[Record]]]:
        """Of each good record of ``records`` its index, its event time, and what the steps make of it.

        A record is bad that cannot be decoded, lacks the key that is needed, or is later than ``latest_ms``. A key that
        is no text counts as none.
        """
        keys = pa.array(records.keys, pa.binary())
        decoded = self._decoder.decode(records.values, keys, records.headers)
        bad = {fault.index for fault in decoded.faults}
        part = _Part(
            offsets=np.array(records.offsets, np.int64),
            columns=decoded.columns,
            keys=decoded.keys.to_pylist(),
            is_null=[value is None for value in records.values],
        )
        self._parts.setdefault(records.partition, []).append(part)
        named = self._topic.event_time
        times = records.timestamps_ms if named is None else decoded.columns[named].to_pylist()
        names, columns = list(part.columns), [column.to_pylist() for column in part.columns.values()]
        for index, (key, time_ms) in enumerate(zip(part.keys, times, strict=True)):
            is_bad = index in bad or (self._is_key_needed and key is None)
            if not is_bad and time_ms is not None and 0 <= time_ms <= latest_ms[index]:
                row = {name: column[index] for name, column in zip(names, columns, strict=True)}
                place = (records.partition, records.offsets[index])
                yield index, time_ms, self._passed(place, time_ms, {**row, self._key: key}, part.is_null[index])

    def made(self, partition: int, offsets: Longs, times_ms: Sequence[int]) -> Iterator[list[Record]]:
        """What the steps make of each of these records of ``partition``, which were taken; ``offsets`` do not fall."""
        times = iter(times_ms)
        for part in self._parts[partition]:
            mine = offsets[(offsets >= part.offsets[0]) & (offsets <= part.offsets[-1])]
            at = np.searchsorted(part.offsets, mine)
            names, columns = list(part.columns), [column.take(at).to_pylist() for column in part.columns.values()]
            for nth, (index, offset) in enumerate(zip(at.tolist(), mine.tolist(), strict=True)):
                row = {name: column[nth] for name, column in zip(names, columns, strict=True)}
                yield self._passed(
                    (partition, offset), next(times), {**row, self._key: part.keys[index]}, part.is_null[index]
                )

    def _passed(self, place: tuple[int, int], time_ms: int, row: dict[str, Any], is_null: bool) -> list[Record]:
        """What comes out of the steps, nothing where a function raised."""
        entry = Entry(topic=self._topic.name, partition=place[0], offset=place[1], timestamp_ms=time_ms)
        order = (self._topic.name, *place)
        found = [Record(row=row, timestamp_ms=time_ms, order=order, entry=entry, is_null=is_null)]
        for step in self._steps:
            found = [made for record in found for made in step.receive(record, 0)]
        return [] if entry in self._journal.raised else found
