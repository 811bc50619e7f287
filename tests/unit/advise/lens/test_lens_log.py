"""Which part of the log is read for an interval, and which of its records reach the aggregation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from tests.batch_proofs import a_proof
from tests.unit.advise.lens.lens_logs import ClickLog, in_log, kept_key

from recount.advise.engine_clocks import kafka_streams, structured_streaming
from recount.advise.lens_log import NEVER, Modelled, Reaching, Span, reaching, span_of
from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import session, tumbling
from recount.runtime.errors import Terminal
from recount.tables.ledger import PartitionProof

TEN = kept_key(tumbling("10 ms", grace="0 ms"))
LOG = ClickLog([[(0, time_ms, "ann"), (1, time_ms, "bob")] for time_ms in (5, 15, 25, 35, 45)])


def test_batches_before_the_interval_are_read_as_far_as_they_share_windows() -> None:
    """Before batch 4 stream time is 35: no record on time is in a window that starts before 25."""
    span = LOG.span(TEN, start_ms=5_000)
    assert (span.ranges, span.start_ms) == ({0: (2, 5), 1: (2, 5)}, 5_000)
    assert (span.reached_ms, span.whole_since_ms) == ({0: 15, 1: 15}, 25)


def test_of_sessions_and_where_a_partition_lags_more_is_read_and_the_end_cuts_by_the_recorded_time() -> None:
    everything = {0: (0, 5), 1: (0, 5)}
    behind = ClickLog([[(0, time_ms, "ann"), (1, 6, "bob")] for time_ms in (5, 15, 25, 35, 45)])
    assert behind.span(TEN, start_ms=5_000).ranges == everything
    assert LOG.span(kept_key(session("5 ms", grace="0 ms")), start_ms=5_000).ranges == everything
    assert LOG.span(TEN, end_ms=3_000).ranges == {0: (0, 2), 1: (0, 2)}


def test_an_interval_without_records_is_refused() -> None:
    with pytest.raises(Terminal, match="clicks has read no record then"):
        LOG.span(TEN, start_ms=6_000)


VISITS = Topic(name="visits", key="id", value=RecordSchema.of(user=STRING, room=LONG, at=LONG, required=("room",)))
OUT = Topic(name="out", key="room")
Value = dict[str, Any] | bytes | None


def modelled(flow: Any) -> Modelled:
    counts = flow.windowed_by(tumbling("10 ms", grace="0 ms")).aggregate(n=count()).emit_final()
    return Modelled.of(Topology(name="visits", sinks=[counts.to(OUT)], max_future="1 s"))


def looked_through(
    found: Modelled, *records: tuple[int, Value], key: bytes | None = b"k", cuts: Sequence[int] = ()
) -> tuple[Reaching, Span]:
    """Records of partition 0, time and value, in batches that begin at ``cuts``; all recorded at 1,000 ms."""
    bounds = [0, *cuts, len(records)]
    parts = [
        PartitionProof(topic="visits", partition=0, start=start, end=end, records=end - start)
        for start, end in pairwise(bounds)
    ]
    proofs = [a_proof(number, part, batch_timestamp_ms=1_000) for number, part in enumerate(parts)]
    span = span_of(found, proofs[::-1], None, None)
    log = in_log("visits", 0, *((offset, time_ms, key, value) for offset, (time_ms, value) in enumerate(records)))
    return reaching(found, span, [log]), span


BY_ROOM = stream(VISITS).select_key(room=col("room"))


def test_a_filtered_record_advances_recount_and_perhaps_spark_but_not_kafka_streams() -> None:
    found = modelled(BY_ROOM.filter(col("user") == "ann"))
    ann, bob = {"room": 1, "user": "ann"}, {"room": 1, "user": "bob"}
    rows, span = looked_through(found, (5, ann), (50, bob), (6, ann), (7, ann), cuts=[2, 3])
    assert (rows.column("offset").tolist(), rows.column("own_ms").tolist()) == ([0, 2, 3], [5, 50, 50])
    assert kafka_streams(span, rows).most.tolist() == [5, 6, 7]
    spark = structured_streaming(span, rows)
    assert (spark.least.tolist(), spark.most.tolist()) == ([NEVER, NEVER, 5], [NEVER, 50, 50])


@pytest.mark.parametrize(
    "bad",
    [(50, b"{"), (50, {"user": "ann"}), (2_001, {"room": 1})],
    ids=["no JSON", "a required field is missing", "more than max_future after its batch"],
)
def test_a_bad_record_advances_nothing(bad: tuple[int, Value]) -> None:
    rows, _ = looked_through(modelled(BY_ROOM), bad, (6, {"room": 1}))
    assert (rows.column("offset").tolist(), rows.column("own_ms").tolist(), rows.seen_ms.tolist()) == ([1], [6], [6])
    assert rows.read == 2
