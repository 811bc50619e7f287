"""What tasks do: stream time, lateness, windows and fates, partition by partition, and what is left to the driver."""

from __future__ import annotations

import pytest
from tests.unit.engine.engine import NOW_MS, LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.schema import BOOLEAN, LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.engine.stage.record_stage import RecordSteps

PURCHASES = Topic(name="purchases", key="id", value=RecordSchema.of(region=STRING, amount=decimal(9, 2)))
TUMBLING = tumbling("10 s", grace="2 s")
COUNTED = stream(PURCHASES).select_key(region=col("region")).windowed_by(TUMBLING).aggregate(records=count())
TOPOLOGY = Topology(name="test", sinks=[COUNTED.emit_final().to(Topic(name="results", key="region"))])


def purchase(timestamp_ms: int) -> LogRecord:
    return LogRecord(timestamp_ms=timestamp_ms, value=b'{"region": "EU", "amount": 1.00}')


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (LogRecord(timestamp_ms=12_000, value=b'{"amount": "one"}'), "schema"),
        (purchase(NOW_MS + 3_600_000), None),
        (purchase(NOW_MS + 3_600_001), "future-timestamp"),
    ],
    ids=["bad", "max_future ahead of the batch", "a millisecond more"],
)
def test_a_bad_record_is_rejected_with_its_bytes_and_does_not_advance_stream_time(
    record: LogRecord, reason: str | None
) -> None:
    engine = TopologyEngine(TOPOLOGY, {"purchases": 1})
    made = engine.batch({"purchases": [record, purchase(9_999)]})
    rejected = [(0, reason, record.value)] if reason else []
    assert made.rejected.select("offset", "reason", "record_value").rows() == rejected
    counts = made.after.partitions["purchases", 0]
    assert (counts.dead_lettered, counts.late) == ((1, 0) if reason else (0, 1))


ORDERS = Topic(
    name="orders",
    key="id",
    value=RecordSchema.of(region=STRING, amount=decimal(9, 2), vip=BOOLEAN, note=STRING, at=LONG),
    event_time="at",
)
OUTPUT = Topic(name="output", key="region")
MINUTE = tumbling("60 s", grace="0 s")
BY_REGION = stream(ORDERS).select_key(region=col("region"))


def test_only_the_fields_that_are_read_are_columns() -> None:
    vips = stream(ORDERS).filter(col("vip")).select_key(region=col("region"))
    sink = vips.windowed_by(MINUTE).aggregate(total=total("amount")).emit_final().to(OUTPUT)
    steps = RecordSteps(Topology(name="vips", sinks=[sink]))
    assert steps.columns == {"orders": ["region", "amount", "vip", "at"]}


_LARGE, _SMALL = (Topic(name=name, key="id") for name in ("large", "small"))
