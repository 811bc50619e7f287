"""The map stage: stream time, lateness, windows and the fate of every record, partition by partition."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.engine import NOW_MS, Engine, LogRecord, arrow_batch

from recount.declare.aggregates import count, largest, smallest, total
from recount.declare.expressions import col
from recount.declare.flow import RecordStream
from recount.declare.schema import LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import TimeWindows, hopping, tumbling
from recount.engine.stage.map_stage import MapStage
from recount.runtime.errors import Terminal

PURCHASES = Topic(
    name="purchases",
    key="id",
    value=RecordSchema.of(region=STRING, amount=decimal(9, 2), at=LONG, required=()),
)
TUMBLING = tumbling("10 s", grace="2 s")
HOPPING = hopping("10 s", advance="5 s", grace="0 s")


def topology(windows: TimeWindows, source: Topic = PURCHASES, flow: RecordStream | None = None) -> Topology:
    records = flow or stream(source).select_key(region=col("region"))
    results = records.windowed_by(windows).aggregate(
        records=count(), amount=total("amount"), least=smallest("amount"), most=largest("amount")
    )
    return Topology(name="test", sinks=[results.emit_final().to(Topic(name="results", key="region"))])


def purchase(timestamp_ms: int, region: str | None = "EU", amount: str = "1.00", partition: int = 0) -> LogRecord:
    value = f'{{"region": {json.dumps(region)}, "amount": {amount}}}'.encode()
    return LogRecord(timestamp_ms=timestamp_ms, value=value, partition=partition)


def late_offsets(engine: Engine) -> list[tuple[int, int]]:
    """(offset, margin in milliseconds) of every late record and window."""
    return engine.made["late"].sort("offset", "window_end").select("offset", "margin_ms").rows()


@pytest.mark.parametrize(
    ("stream_time_ms", "late"), [(11_999, []), (12_000, [(1, 0)]), (12_001, [(1, 1)])], ids=["before", "at", "after"]
)
def test_a_record_is_late_when_its_window_ended_at_or_before_stream_time_less_grace(
    stream_time_ms: int, late: list[tuple[int, int]]
) -> None:
    engine = Engine(topology(TUMBLING))
    engine.batch(purchase(stream_time_ms), purchase(9_999))
    assert late_offsets(engine) == late


def test_stream_time_is_carried_over_arrow_batches_and_over_micro_batches() -> None:
    engine = Engine(topology(TUMBLING), cuts=[1])
    engine.batch(purchase(12_000), purchase(9_000))
    engine.batch(purchase(9_999))
    assert late_offsets(engine) == [(1, 0), (2, 0)]


def test_a_filtered_record_advances_stream_time() -> None:
    flow = stream(PURCHASES).filter(col("amount") > 1).select_key(region=col("region"))
    engine = Engine(topology(TUMBLING, flow=flow))
    engine.batch(purchase(12_000, amount="0.50"), purchase(9_999, amount="2.00"))
    assert late_offsets(engine) == [(1, 0)]
    assert engine.counts["filtered"] == 1


def test_a_null_key_does_not_advance_stream_time() -> None:
    engine = Engine(topology(TUMBLING))
    engine.batch(purchase(12_000, region=None), purchase(9_999))
    assert late_offsets(engine) == []
    assert engine.counts["null_key"] == 1


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (LogRecord(timestamp_ms=12_000, value=b"{"), "undecodable"),
        (LogRecord(timestamp_ms=12_000, value=b'{"amount": "one"}'), "schema"),
        (purchase(-1), "negative-timestamp"),
        (purchase(NOW_MS + 3_600_001), "future-timestamp"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_bad_record_is_rejected_with_its_reason_and_does_not_advance_stream_time(bad: LogRecord, reason: str) -> None:
    engine = Engine(topology(TUMBLING))
    engine.batch(bad, purchase(9_999))
    assert engine.made["rejected"].select("offset", "reason").rows() == [(0, reason)]
    assert engine.made["rejected"]["record_value"].to_list() == [bad.value]
    assert late_offsets(engine) == []
    assert engine.counts["dead_lettered"] == 1


def test_a_timestamp_max_future_ahead_of_the_batch_is_not_absurd() -> None:
    engine = Engine(topology(TUMBLING))
    engine.batch(purchase(NOW_MS + 3_600_000))
    assert engine.counts["counted"] == 1


def test_event_time_is_the_declared_field_and_a_record_without_it_is_bad() -> None:
    timed = Topic(name="timed", key="id", value=PURCHASES.value, event_time="at")
    engine = Engine(topology(TUMBLING, source=timed))
    engine.batch(
        LogRecord(timestamp_ms=5, value=b'{"region": "EU", "at": 70000}'),
        LogRecord(timestamp_ms=5, value=b'{"region": "EU"}'),
    )
    assert engine.made["partials"]["window_start"].to_list() == [70_000]
    assert engine.made["rejected"].select("offset", "reason", "timestamp_ms").rows() == [(1, "schema", 5)]


def test_a_record_grouped_by_its_own_key_is_bad_without_one() -> None:
    engine = Engine(topology(TUMBLING, flow=stream(PURCHASES)))
    engine.batch(
        LogRecord(timestamp_ms=1_000, key=None),
        LogRecord(timestamp_ms=1_000, key=b"\xff"),
        LogRecord(timestamp_ms=1_000, key=b""),
    )
    assert engine.made["rejected"].select("offset", "reason").rows() == [(0, "null-key"), (1, "undecodable")]
    assert engine.counts["counted"] == 1


def test_the_record_key_can_be_read_by_an_expression() -> None:
    flow = stream(PURCHASES).select_key(region=col("__key"))
    engine = Engine(topology(TUMBLING, flow=flow))
    engine.batch(LogRecord(timestamp_ms=1_000, key=b"FR"))
    assert engine.made["partials"]["region"].to_list() == ["FR"]


def test_a_field_may_have_the_name_of_a_column_of_the_log() -> None:
    names = ("topic", "partition", "offset", "timestamp_ms", "reason", "detail", "key", "value", "index")
    schema = RecordSchema.of(region=STRING, amount=decimal(9, 2), **dict.fromkeys(names, STRING))
    source = Topic(name="awkward", key="id", value=schema)
    flow = stream(source).select_key(region=col("offset"))
    for name in names:
        flow = flow.filter(col(name) == name)
    engine = Engine(topology(TUMBLING, flow=flow))
    value = json.dumps({"amount": 1, **{name: name for name in names}}).encode()
    engine.batch(LogRecord(timestamp_ms=1_000, value=value))
    assert engine.made["partials"].select("region", "records").rows() == [("offset", 1)]


def test_records_of_two_partitions_in_one_task_are_refused() -> None:
    stage = MapStage(plan=Engine(topology(TUMBLING)).plan, stream_times={}, latest_ms=NOW_MS)
    batches = [arrow_batch("purchases", partition, 0, [purchase(1_000)]) for partition in (0, 1)]
    with pytest.raises(Terminal):
        list(stage(iter(batches)))


def test_a_task_without_records_says_nothing() -> None:
    stage = MapStage(plan=Engine(topology(TUMBLING)).plan, stream_times={}, latest_ms=NOW_MS)
    assert list(stage(iter([arrow_batch("purchases", 0, 0, [])]))) == []


purchases = st.builds(
    purchase,
    st.integers(-1_000, 60_000),
    st.sampled_from(["EU", "US", None]),
    st.sampled_from(["1.00", "0.10", "null", '"bad"', "1.234"]),
)
logs = st.lists(purchases, max_size=12)


@settings(deadline=None, max_examples=50)
@given(logs, st.lists(st.integers(0, 12), max_size=4), st.sampled_from([TUMBLING, HOPPING]))
def test_the_result_does_not_depend_on_where_arrow_batches_are_cut(
    log: list[LogRecord], cuts: list[int], windows: TimeWindows
) -> None:
    whole, pieces = Engine(topology(windows)), Engine(topology(windows), cuts=cuts)
    assert whole.batch(*log).rows() == pieces.batch(*log).rows()
    for name, table in whole.made.items():
        assert sorted(table.rows(), key=str) == sorted(pieces.made[name].rows(), key=str)


@settings(deadline=None, max_examples=50)
@given(logs, st.sampled_from([TUMBLING, HOPPING]))
def test_every_record_has_exactly_one_fate(log: list[LogRecord], windows: TimeWindows) -> None:
    engine = Engine(topology(windows))
    engine.batch(*log)
    counts = engine.counts
    assert counts.pop("records") == len(log)
    assert sum(counts.values()) == len(log)
