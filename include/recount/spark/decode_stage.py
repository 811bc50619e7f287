"""The map stage of a general topology: a task decodes the records of one partition and sets the bad ones aside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from recount.core.nodes import Source
from recount.core.schema import RecordSchema
from recount.spark.columns import TIMESTAMP
from recount.spark.intake import PLACE, REJECTED_SCHEMA, Intake
from recount.spark.polars_expressions import field_column, polars_type
from recount.spark.stage import ARROW_OUTPUT, partition_of, to_ipc

REJECTED = "rejected"
RECORD_KEY, HAS_VALUE = "record_key_text", "has_value"


@dataclass(frozen=True, kw_only=True)
class DecodeStage:
    """One batch's stage, shipped to every task; leaves ``rejected``, and per topic a table of good records.

    A good record has its place, ``timestamp_ms``, ``record_key_text``, ``has_value`` and every declared field.
    ``keyed`` are the topics of which every record needs a key; ``latest_ms`` is the last event time that is not
    absurd: the batch's recorded time plus ``max_future``.
    """

    sources: Mapping[str, Source]
    keyed: frozenset[str]
    latest_ms: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The task: Arrow batches of one partition in, the tables out."""
        intake: Intake | None = None
        topic = ""
        good, rejected = [], []
        for batch in batches:
            if batch.num_rows:
                topic, _ = partition_of(batch)
                intake = intake or self._intake(topic)
                taken, bad = intake.take(batch)
                good.append(self._read(topic, taken))
                rejected.append(bad)
        if intake:
            tables = {topic: pl.concat(good), REJECTED: pl.concat(rejected)}
            yield pa.record_batch([list(tables), [to_ipc(table) for table in tables.values()]], schema=ARROW_OUTPUT)

    def empty_tables(self) -> dict[str, list[pl.DataFrame]]:
        """The tables without rows, to which those of the tasks are added."""
        good = {topic: [pl.DataFrame(schema=self._schema(source))] for topic, source in self.sources.items()}
        return {**good, REJECTED: [pl.DataFrame(schema=REJECTED_SCHEMA)]}

    def _intake(self, topic: str) -> Intake:
        source = self.sources[topic]
        columns = list(_value(source).fields)
        return Intake(source, columns, needs_key=topic in self.keyed, latest_ms=self.latest_ms)

    def _read(self, topic: str, good: pl.DataFrame) -> pl.DataFrame:
        source = self.sources[topic]
        named = good.with_columns(
            pl.col(field_column(source.key)).alias(RECORD_KEY), pl.col("record_value").is_not_null().alias(HAS_VALUE)
        )
        return named.select(list(self._schema(source)))

    @staticmethod
    def _schema(source: Source) -> dict[str, pl.DataType]:
        fields = {field_column(name): polars_type(kind) for name, kind in _value(source).fields.items()}
        return {**PLACE, TIMESTAMP: pl.Int64(), RECORD_KEY: pl.String(), HAS_VALUE: pl.Boolean(), **fields}


def _value(source: Source) -> RecordSchema:
    assert source.topic.value is not None, "checked by Source"
    return source.topic.value
