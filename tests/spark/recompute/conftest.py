"""Logs in memory, read in place of Kafka."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.unit.engine.engine import LogRecord

from recount.declare.topology import Topology
from recount.recompute.decoding import Limits
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import Frame, frame_of
from recount.recompute.operators.recomputed import Recomputed, recomputed
from recount.recompute.raw_log import SCHEMA, Ranges, RawLog


@pytest.fixture
def database() -> Iterator[Database]:
    """The database of a recompute."""
    found = Database()
    yield found
    found.close()


def framed(database: Database, schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> Frame:
    """``rows`` as a frame."""
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(schema.types)]
    return frame_of(database, [pa.table(columns, schema)], schema)


@dataclass(frozen=True)
class MemoryLog:
    """A log whose partitions hold ``records`` in the order given, from offset 0 on."""

    records: Sequence[LogRecord]

    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        """All of it."""
        partitions = {record.partition for record in self.records}
        return {p: (0, sum(record.partition == p for record in self.records)) for p in sorted(partitions)}

    def read(
        self,
        session: SparkSession,
        topic: str,  # noqa: ARG002 - it holds one
        ranges: Ranges,
        *,
        with_key: bool = True,
        with_headers: bool = False,
    ) -> RawLog:
        assert not with_headers, "records of a MemoryLog have no headers"
        rows = [
            (partition, offset, record.timestamp_ms, record.key if with_key else None, record.value)
            for partition, (start, end) in sorted(ranges.items())
            for offset, record in enumerate(one for one in self.records if one.partition == partition)
            if start <= offset < end
        ]
        return RawLog(frame=session.createDataFrame(rows, SCHEMA).coalesce(1))


def recomputed_of(
    spark: SparkSession,
    topology: Topology,
    log: MemoryLog,
    *,
    limits: Mapping[int, Limits] | None = None,
    lateness: bool = True,
) -> Recomputed:
    """The recompute of all of the log of a topology of one source."""
    name = topology.sources[0].topic.name
    logs = {name: log.read(spark, name, log.ranges)}
    return recomputed(spark, topology, logs, limits={name: limits or {}}, lateness=lateness)


def results_of(done: Recomputed) -> list[dict[str, Any]]:
    """The results of its one sink."""
    [found] = done.results.values()
    return found.rows()


def order(**fields: Any) -> bytes:
    """An order's value."""
    return json.dumps(fields).encode()


def told(rows: Sequence[Mapping[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """The columns ``names`` of ``rows``, sorted."""
    return sorted(tuple(row[name] for name in names) for row in rows)
