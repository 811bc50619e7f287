"""A late record explains the missed rows that it would have changed, of each kind of window, and no others."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from recount.audit.completeness import COMPLETENESS, MISSED
from recount.audit.topologies.judge import SEEN_TEXT, SINK
from recount.audit.topologies.misses import grace_misses
from recount.core.aggregates import count
from recount.core.schema import STRING, RecordSchema
from recount.core.topics import Topic
from recount.core.topology import Topology, stream
from recount.core.windows import SessionWindows, SlidingWindows, TimeWindows, session, sliding, tumbling
from recount.recompute.graph.lookups import UNREAD_SCHEMA

VIEWS = Topic(name="views", key="user", value=RecordSchema.of(user=STRING))
LATE_MS = 100_000
_JUDGED = (
    f"{SINK} string, key string, window_start long, window_end long, origin string, {COMPLETENESS} string,"
    f" {SEEN_TEXT} string, complete_text string"
)
_LATE = (
    "topic string, partition int, offset long, key string, timestamp_ms long, window_start long, window_end long,"
    " margin_ms long"
)


@pytest.mark.parametrize(
    ("windows", "late_window", "explained", "unexplained"),
    [
        (sliding("10 s", grace="0 s"), (90_000, 100_000), (100_001, 110_001), (100_002, 110_002)),
        (sliding("10 s", grace="0 s"), (90_000, 100_000), (80_000, 90_000), (79_998, 89_998)),
        (session("5 s", grace="0 s"), (100_000, 100_000), (105_000, 107_000), (105_001, 107_000)),
        (tumbling("10 s", grace="0 s"), (100_000, 110_000), (100_000, 110_000), (120_000, 130_000)),
    ],
)
def test_a_late_record_explains_what_it_would_have_changed(
    tiny: None,
    spark: SparkSession,
    windows: TimeWindows | SlidingWindows | SessionWindows,
    late_window: tuple[int, int],
    explained: tuple[int, int],
    unexplained: tuple[int, int],
) -> None:
    counted = stream(VIEWS).windowed_by(windows).aggregate(n=count()).emit_final().to(Topic(name="counts", key="user"))
    judged = [("counts", "ann", *window, None, MISSED, None, "") for window in (explained, unexplained)]
    late = [("views", 0, 7, "ann", LATE_MS, *late_window, 1)]
    found = grace_misses(
        spark.createDataFrame(judged, _JUDGED),
        spark.createDataFrame(late, _LATE),
        spark.createDataFrame([], UNREAD_SCHEMA),
        Topology(name="counting", sinks=[counted]),
    )
    assert {(one.window_start, one.window_end): one.explained for one in found} == {explained: True, unexplained: False}
