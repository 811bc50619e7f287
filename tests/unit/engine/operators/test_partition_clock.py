"""How far event time has come: stream times, idleness and the frontier."""

from __future__ import annotations

import json

import polars as pl
from tests.batch_proofs import a_proof

from recount.declare.operators.event_time import Layers
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.source.checkpoint import BatchRange
from recount.tables.ledger import BatchProof

IDLE_AFTER_MS = 300_000
TOTALS = {
    "topic": pl.String(),
    **dict.fromkeys(("partition", "stream_time_ms", "records", "dead_lettered", "in_seconds"), pl.Int64()),
}


def advanced(clock: PartitionClock, at_ms: int, partitions: int = 2, **stream_times_ms: int | None) -> PartitionClock:
    """The clock after a batch planned at ``at_ms`` in which each named partition (``p0=...``) had a record."""
    totals = [
        {**dict.fromkeys(TOTALS, 0), "topic": "t", "partition": int(name[1:]), "stream_time_ms": time_ms}
        for name, time_ms in stream_times_ms.items()
    ]
    keys = [("t", partition) for partition in range(partitions)]
    span = BatchRange(batch=0, timestamp_ms=at_ms, start=dict.fromkeys(keys, 0), end=dict.fromkeys(keys, 1))
    return clock.advanced(span, pl.DataFrame(totals, schema=TOTALS), IDLE_AFTER_MS)


START = PartitionClock.after(None)


def test_when_all_have_been_silent_one_record_of_any_partition_moves_the_frontier_to_its_time() -> None:
    """A heartbeat: no batch has run since, so until it comes nobody is idle."""
    clock = advanced(START, 0, partitions=3, p0=50, p1=20)
    assert not any(proof.idle for proof in clock.partitions.values())
    beaten = advanced(clock, 10 * IDLE_AFTER_MS, partitions=3, p1=90)
    assert [proof.idle for proof in beaten.partitions.values()] == [True, False, True]
    assert beaten.frontier_ms == 90
    assert advanced(advanced(START, 0, p0=50, p1=20), 2 * IDLE_AFTER_MS).frontier_ms == 20, "all are idle"


def test_an_idle_partition_that_speaks_again_and_the_clock_that_comes_from_the_ledger() -> None:
    clock = advanced(advanced(START, 0, p0=50, p1=20), IDLE_AFTER_MS, p0=90)
    again = advanced(clock, IDLE_AFTER_MS + 1, p1=30)
    assert (again.frontier_ms, again.stream_times["t", 1], again.partitions["t", 1].idle) == (90, 30, False)
    partitions = clock.partitions.values()
    proof = a_proof(1, *partitions, batch_timestamp_ms=IDLE_AFTER_MS, frontier_ms=clock.frontier_ms)
    assert PartitionClock.after(BatchProof.from_json(json.dumps(json.loads(proof.to_json())))) == clock


def test_item_1_7_a_batch_that_reads_tables_alone_tells_nobody_idle_who_was_not_asked() -> None:
    keys = [("table", 0), ("events", 0)]
    layers = (("table",), ("events",))

    def after(clock: PartitionClock, at_ms: int, *topics: str, layers: Layers = layers) -> PartitionClock:
        totals = [{**dict.fromkeys(TOTALS, 0), "topic": topic, "partition": 0, "stream_time_ms": 7} for topic in topics]
        span = BatchRange(batch=0, timestamp_ms=at_ms, start=dict.fromkeys(keys, 0), end=dict.fromkeys(keys, 1))
        return clock.advanced(span, pl.DataFrame(totals, schema=TOTALS), IDLE_AFTER_MS, layers)

    begun = after(START, 0, "table", "events")
    held = after(begun, IDLE_AFTER_MS, "table")
    assert not held.partitions["events", 0].idle
    assert after(begun, IDLE_AFTER_MS, "table", layers=(("events", "table"),)).partitions["events", 0].idle
    silent = after(begun, IDLE_AFTER_MS, "events")
    assert silent.partitions["table", 0].idle
    assert after(silent, IDLE_AFTER_MS + 1, "table").partitions["table", 0].idle is False
