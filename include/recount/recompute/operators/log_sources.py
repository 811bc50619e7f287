"""The records of a source topic, decoded once for all sources that read it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from recount.declare.operators.nodes import KEY, Source
from recount.recompute.decoding import IS_NULL, DecodePass, Limits
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Window, named
from recount.recompute.frames.duck_frames import Frame, union_of
from recount.recompute.frames.duck_handover import Handover
from recount.recompute.operators.frontiers import BatchEnds, ends_of_batches
from recount.recompute.operators.log_rows import (
    CARRIED,
    OFFSET,
    ORDER,
    PARTITION,
    PLACE,
    REACHED,
    SUPERSEDED,
    TIME,
    TOPIC,
    TURN,
    at_place,
    shaped,
)
from recount.recompute.raw_log import Ranges, RawLog, RecordsAtHand, runs

_FIELD = "field."
IN_PARTITION, IN_BATCH, REACHED_IN_BATCH = "reached_ms", "in_batch", "reached_in_batch_ms"
_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, kw_only=True)
class FieldsOfTopic:
    """The fields of a source's topic that any operator looks at; others are null in its rows."""

    source: Source
    needs_record_key: bool
    columns_read: Sequence[str]


def decoded(
    raw: RawLog | RecordsAtHand,
    source: Source,
    handover: Handover,
    *,
    columns_read: Sequence[str],
    needs_record_key: bool,
    limits: Mapping[int, Limits],
    read_since: Mapping[str, Mapping[int, int]],
    batches: Sequence[BatchEnds],
) -> Frame:
    """One row per record of the topic's log: place, time, ``REACHED``, key, fields, and ``reason`` of a bad one.

    With the columns of ``TURN``, of the ``batches`` that read the log; without any it was read in one.
    """
    reading = FieldsOfTopic(source=source, needs_record_key=needs_record_key, columns_read=columns_read)
    decode = DecodePass(flow=reading, limits=limits, prefix=_FIELD, read_since=read_since)
    turns = TurnPass(boundaries=ends_of_batches(batches, source.topic.name))
    added = [T.StructField(name, T.LongType()) for name in (IN_PARTITION, IN_BATCH, REACHED_IN_BATCH)]
    schema = T.StructType([*decode.schema, *added])
    rows = handover.passed(raw, schema, decode, turns)
    places = {"partition": PLACE[1], "offset": PLACE[2], "timestamp_ms": TIME, IN_PARTITION: REACHED}
    return rows.renamed(places).with_column(TOPIC, F.lit(source.topic.name))


def entries(log: Frame) -> Frame:
    """Place and event time of every good record of a decoded ``log``: what advances stream time."""
    return log.where(F.col("reason").is_null()).select(*PLACE, TIME)


def records(log: Frame, source: Source) -> Frame:
    """The good records of a decoded ``log`` as ``source`` names their fields."""
    good = log.where(F.col("reason").is_null())
    fields = {name: _FIELD + name for name in source.fields if name != source.key and _FIELD + name in log.columns}
    read = [named(column).alias(name) for name, column in fields.items()]
    of_records = (*PLACE, TIME, REACHED, IN_BATCH, REACHED_IN_BATCH, IS_NULL)
    named_anew = good.select(*read, named(KEY).alias(source.key), *of_records)
    turn = F.struct(F.col(IN_BATCH).alias("batch"), F.col(REACHED_IN_BATCH).alias("reached_ms"))
    new = {CARRIED: F.lit(None).cast("long"), TURN: turn, ORDER: at_place(), SUPERSEDED: F.lit(False)}
    return shaped(named_anew.with_columns(new), source.fields)


def gaps(log: Frame, ranges: Ranges) -> dict[int, list[tuple[int, int]]]:
    """The parts of ``ranges``, which are not empty, in which a decoded ``log`` has no record: first offset and end."""
    asked = F.lit(False)
    for partition in ranges:
        asked = asked | (F.col(PARTITION) == partition)
    rows, first, end = log.where(asked).select(PARTITION, OFFSET), "__first", "__end"
    bounds = rows.group_by(PARTITION).agg(F.smallest(OFFSET).alias(first), (F.largest(OFFSET) + 1).alias(end)).rows()
    found: dict[int, list[tuple[int, int]]] = {partition: [span] for partition, span in ranges.items()}
    for row in bounds:
        outer = ranges[row[PARTITION]]
        around = [(outer[0], row[first]), (row[end], outer[1])]
        found[row[PARTITION]] = [(start, stop) for start, stop in around if start < stop]
    before = F.one_before(OFFSET).over(Window.of(PARTITION).sorted(OFFSET))
    following = rows.select(PARTITION, OFFSET, (before + 1).alias(first)).where(F.col(first) < F.col(OFFSET))
    for row in following.rows():
        found[row[PARTITION]].append((row[first], row[OFFSET]))
    return {partition: sorted(those) for partition, those in found.items() if those}


def places(decoded: Iterable[Frame]) -> Frame:
    """Place, time, reason and detail of all records of the ``decoded`` logs."""
    return union_of([one.select(TOPIC, PARTITION, OFFSET, TIME, "reason", "detail") for one in decoded])


def rejected(log: Frame) -> Frame:
    """The bad records among the ``places`` of logs."""
    return log.where(F.col("reason").is_not_null()).select(
        F.col(TOPIC).alias("topic"),
        F.col(PARTITION).alias("partition"),
        F.col(OFFSET).alias("offset"),
        F.col(TIME).alias("timestamp_ms"),
        "reason",
        "detail",
    )


@dataclass(frozen=True, kw_only=True)
class TurnPass:
    """One task's pass over its decoded records: adds ``IN_PARTITION``, the largest event time of the good records of
    the partition up to each (null: there was none yet), ``IN_BATCH``, counted from 0, and ``REACHED_IN_BATCH``.

    ``boundaries`` are by partition the ends of all batches; where there are none, one batch read all. The records of
    one key in several partitions are taken batch by batch, and those of one batch by the largest event time that it has
    read of their partition up to them: in the order of event time, as far as the offsets of each allow.
    """

    boundaries: Mapping[int, np.ndarray]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Arrow batches of whole partitions in offset order, in and out."""
        reached: dict[int, tuple[int, int]] = {}
        stood: dict[int, int] = {}
        last: dict[int, int] = {}
        for batch in batches:
            for partition, records in runs(batch, last):
                ends = self.boundaries.get(partition, np.zeros(0, np.int64))
                numbers = np.searchsorted(ends, records.column("offset").to_numpy(), side="right")
                is_good = records.column("reason").is_null().to_numpy(zero_copy_only=False)
                times = np.where(is_good, records.column("timestamp_ms").fill_null(0).to_numpy(), _NEVER)
                so_far = np.maximum(np.maximum.accumulate(times), stood.get(partition, _NEVER))
                stood[partition] = int(so_far[-1])
                number, reached_ms = reached.get(partition, (-1, _NEVER))
                if numbers[0] == number:
                    times[0] = max(times[0], reached_ms)
                starts = np.flatnonzero(np.diff(numbers)) + 1
                parts = [np.maximum.accumulate(part) for part in np.split(times, starts)]
                reached[partition] = int(numbers[-1]), int(parts[-1][-1])
                added = {IN_BATCH: numbers.astype(np.int64), REACHED_IN_BATCH: np.concatenate(parts)}
                records = records.append_column(IN_PARTITION, pa.array(so_far, mask=so_far == _NEVER))
                for name, values in added.items():
                    records = records.append_column(name, pa.array(values))
                yield records
