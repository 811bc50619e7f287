"""The map stage of a general topology: a task decodes the records of one partition, sets the bad ones aside, and takes
the good ones as far as each goes by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from recount.core.nodes import Source
from recount.core.own_columns import IS_NULL
from recount.spark.columns import STREAM_TIME, TIMESTAMP
from recount.spark.intake import IN_SECONDS, REJECTED_SCHEMA, Intake
from recount.spark.operators.clock import READ_SCHEMA
from recount.spark.operators.rows import OFFSET, TOPIC
from recount.spark.polars_expressions import field_column
from recount.spark.record_steps import RECORD_KEY, RecordSteps
from recount.spark.stage import ARROW_OUTPUT, Partition, partition_of, to_ipc

REJECTED = "rejected"
WRITTEN = "__written"
"""Whether the record reached a sink that tasks run."""
READ: dict[str, pl.DataType] = {
    **{name: kind for name, kind in READ_SCHEMA.items() if name != TOPIC},
    WRITTEN: pl.Boolean(),
    IN_SECONDS: pl.Boolean(),
}


@dataclass(frozen=True, kw_only=True)
class RecordStage:
    """One batch's stage, shipped to every task.

    It leaves ``rejected``, per topic (``read_of``) every good record that was read, with its stream time, and the
    tables of ``steps``. ``keyed`` are the topics of which every record needs a key; ``stream_times`` are those of the
    partitions before the batch; ``latest_ms`` is the last event time that is not absurd: the batch's recorded time plus
    ``max_future``.
    """

    steps: RecordSteps
    sources: Mapping[str, Source]
    keyed: frozenset[str]
    stream_times: Mapping[Partition, int | None]
    latest_ms: int
    set_aside: Mapping[Partition, frozenset[int]] = field(default_factory=dict)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The task: Arrow batches of one partition in, the tables out."""
        intake: Intake | None = None
        place: Partition = ("", -1)
        good, rejected = [], []
        for batch in batches:
            if batch.num_rows:
                place = partition_of(batch)
                intake = intake or self._intake(place)
                taken, bad = intake.take(batch)
                good.append(taken)
                rejected.append(bad)
        if intake:
            tables = {**self._tables(place, pl.concat(good)), REJECTED: pl.concat(rejected)}
            yield pa.record_batch([list(tables), [to_ipc(table) for table in tables.values()]], schema=ARROW_OUTPUT)

    def empty_tables(self) -> dict[str, list[pl.DataFrame]]:
        """The tables without rows, to which those of the tasks are added."""
        schemas = {**{read_of(topic): READ for topic in self.sources}, **self.steps.schemas, REJECTED: REJECTED_SCHEMA}
        return {name: [pl.DataFrame(schema=schema)] for name, schema in schemas.items()}

    def _intake(self, place: Partition) -> Intake:
        topic, _ = place
        return Intake(
            self.sources[topic],
            self.steps.columns[topic],
            needs_key=topic in self.keyed,
            latest_ms=self.latest_ms,
            set_aside=self.set_aside.get(place, frozenset()),
        )

    def _tables(self, place: Partition, good: pl.DataFrame) -> dict[str, pl.DataFrame]:
        topic, _ = place
        reached = pl.max_horizontal(pl.col(TIMESTAMP).cum_max(), pl.lit(self.stream_times.get(place), pl.Int64))
        key = pl.col(field_column(self.sources[topic].key))
        records = good.with_columns(key.alias(RECORD_KEY), pl.col("record_value").is_null().alias(IS_NULL))
        tables, written = self.steps.taken(topic, records)
        read = good.with_columns(reached.alias(STREAM_TIME), pl.col(OFFSET).is_in(written.implode()).alias(WRITTEN))
        return {**tables, read_of(topic): read.select(list(READ))}


def read_of(topic: str) -> str:
    """The name of the table of all good records of ``topic``."""
    return f"read {topic}"
