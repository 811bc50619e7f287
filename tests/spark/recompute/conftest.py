"""Logs in memory, read in place of Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.unit.engine.engine import LogRecord

from recount.audit.compare.results import merged
from recount.declare.columns import IS_LATE
from recount.declare.topology import Topology
from recount.recompute.decoding import Limits
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import Frame, frame_of
from recount.recompute.operators.recomputed import recomputed
from recount.recompute.raw_log import SCHEMA, Ranges, RawLog
from recount.recompute.single_flow import Flow
from recount.recompute.window_partials import WindowPartials


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


def partials_of(
    spark: SparkSession,
    topology: Topology,
    log: MemoryLog,
    ranges: Ranges | None = None,
    *,
    limits: Mapping[int, Limits] | None = None,
    stream_times: Mapping[int, int] | None = None,
) -> WindowPartials:
    """The partials of ``ranges`` (None: all) of the log of a single aggregation; ``stream_times`` were before them."""
    name = topology.sources[0].topic.name
    raw = log.read(spark, name, log.ranges if ranges is None else ranges)
    stood = {(name, partition): time_ms for partition, time_ms in (stream_times or {}).items()}
    done = recomputed(spark, topology, {name: raw}, limits={name: limits or {}}, stood=stood)
    return WindowPartials(flow=Flow.of(topology), recomputed=done)


def results_of(*partials: WindowPartials, late: bool = False) -> list[dict[str, Any]]:
    """The results that they make together; those of unlimited grace with ``late`` records."""
    rows = pl.concat([pl.DataFrame(one.partials.arrow()) for one in partials])
    return merged(rows if late else rows.filter(~pl.col(IS_LATE)), partials[0].flow).to_dicts()


def order(**fields: Any) -> bytes:
    """An order's value."""
    return json.dumps(fields).encode()


def told(rows: Sequence[Mapping[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """The columns ``names`` of ``rows``, sorted."""
    return sorted(tuple(row[name] for name in names) for row in rows)
