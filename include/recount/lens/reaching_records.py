"""The records that reach the aggregation: where they lie, when they happened, under which key."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from recount.core.interpreter.record import Record
from recount.lens.decoded_fields import DecodedFields
from recount.lens.modelled import Modelled
from recount.lens.raw_log_reading import Records
from recount.lens.stretch import NEVER, Longs, Stretch


@dataclass(frozen=True, kw_only=True)
class Reaching:
    """A row for each record that reaches the aggregation with a key, in the order of (partition, offset).

    A flat-map can make several rows of a record: ``number`` counts them. ``own_ms`` is the stream time of the record's
    own partition at its offset, by which Recount judges. ``key`` is an index of ``keys``, ``batch`` the number of its
    batch. ``seen_ms`` is the largest event time of every batch among all records that can be decoded, of which steps
    may have dropped some. ``read`` is how many records were read.
    """

    partition: Longs
    offset: Longs
    number: Longs
    time_ms: Longs
    own_ms: Longs
    key: Longs
    batch: Longs
    keys: Sequence[str | int]
    seen_ms: Longs
    read: int
    fields: DecodedFields

    @property
    def keys_in_several_partitions(self) -> int:
        """How many keys have records in more than one source partition."""
        places = pl.DataFrame({"key": self.key, "partition": self.partition}).unique()
        return int((places["key"].value_counts()["count"] > 1).sum())

    def records(self, rows: Longs) -> Iterator[Record]:
        """The records of ``rows``, which rise, as they reach the aggregation."""
        for partition in np.unique(self.partition[rows]):
            mine = rows[self.partition[rows] == partition]
            made = self.fields.made(int(partition), self.offset[mine], self.time_ms[mine].tolist())
            yield from (one[number] for one, number in zip(made, self.number[mine].tolist(), strict=True))


def reaching(modelled: Modelled, stretch: Stretch, log: Iterable[Records]) -> Reaching:
    """Decode ``log`` and send it down the steps, partition by partition in offset order.

    A record without the key that the aggregation needs advances no clock; one that is filtered advances Recount's.
    """
    fields, key_name = DecodedFields(modelled), modelled.aggregate.key
    codes: dict[str | int, int] = {}
    columns = {name: array("q") for name in ("partition", "offset", "number", "time_ms", "own_ms", "key", "batch")}
    appends = [column.append for column in columns.values()]
    reached_ms = dict(stretch.reached_ms)
    seen_ms, read = [NEVER] * stretch.batches, 0
    for records in log:
        read += len(records.offsets)
        partition, offsets = records.partition, np.array(records.offsets, np.int64)
        latest_ms = stretch.recorded_ms_of(partition, offsets) + modelled.topology.max_future_ms
        batches = stretch.batch_of(partition, offsets).tolist()
        for index, time_ms, made in fields.take(records, latest_ms.tolist()):
            batch = batches[index]
            seen_ms[batch] = max(seen_ms[batch], time_ms)
            keys = [record.row[key_name] for record in made]
            if keys and all(key is None for key in keys):
                continue
            own_ms = reached_ms[partition] = max(time_ms, reached_ms.get(partition, time_ms))
            for number, key in enumerate(keys):
                if key is not None:
                    code = codes.setdefault(key, len(codes))
                    row = (partition, records.offsets[index], number, time_ms, own_ms, code, batch)
                    for append, cell in zip(appends, row, strict=True):
                        append(cell)
    found = {name: np.frombuffer(column, np.int64) for name, column in columns.items()}
    return Reaching(**found, keys=list(codes), seen_ms=np.array(seen_ms, np.int64), read=read, fields=fields)
