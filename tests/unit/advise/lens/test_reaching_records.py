"""Which records reach the aggregation, which of them advance whose clock, and what they look like there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from recount.advise.engine_clocks import kafka_streams, structured_streaming
from recount.advise.lens_log import Reaching, Records, reaching
from recount.advise.lens_model import NEVER, Modelled, Span
from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling

VISITS = Topic(name="visits", key="id", value=RecordSchema.of(user=STRING, room=LONG, at=LONG, required=("room",)))
OUT = Topic(name="out", key="room")
Value = dict[str, Any] | bytes | None


def modelled(flow: Any) -> Modelled:
    counts = flow.windowed_by(tumbling("10 ms", grace="0 ms")).aggregate(n=count()).emit_final()
    return Modelled.of(Topology(name="visits", sinks=[counts.to(OUT)], max_future="1 s"))


def looked_through(
    found: Modelled,
    *records: tuple[int, Value],
    key: bytes | None = b"k",
    cuts: Sequence[int] = (),
) -> tuple[Reaching, Span]:
    """Records of partition 0, time and value, in batches that begin at ``cuts``; all recorded at 1,000 ms."""
    bounds = {0: np.array([0, *cuts, len(records)], np.int64)}
    span = Span(
        topic="visits",
        recorded_bounds=bounds,
        recorded_ms=np.full(len(cuts) + 1, 1_000),
        bounds=bounds,
        judged_from={0: 0},
        records={0: len(records)},
        reached_ms={},
    )
    log = Records(
        partition=0,
        offsets=range(len(records)),
        timestamps_ms=[time_ms for time_ms, _ in records],
        keys=[key] * len(records),
        values=[json.dumps(value).encode() if isinstance(value, dict) else value for _, value in records],
    )
    return reaching(found, span, [log]), span


BY_ROOM = stream(VISITS).select_key(room=col("room"))


def test_a_filtered_record_advances_recount_and_perhaps_spark_but_not_kafka_streams() -> None:
    found = modelled(BY_ROOM.filter(col("user") == "ann"))
    ann, bob = {"room": 1, "user": "ann"}, {"room": 1, "user": "bob"}
    rows, span = looked_through(found, (5, ann), (50, bob), (6, ann), (7, ann), cuts=[2, 3])
    assert (rows.column("offset").tolist(), rows.column("own_ms").tolist()) == ([0, 2, 3], [5, 50, 50])
    assert kafka_streams(found, span, rows).most.tolist() == [5, 6, 7]
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


def test_a_record_without_the_new_key_does_not_advance_recount() -> None:
    by_user = stream(VISITS).select_key(user=col("user"))
    rows, _ = looked_through(modelled(by_user), (50, {"room": 1}), (6, {"room": 1, "user": "ann"}))
    assert (rows.column("offset").tolist(), rows.column("own_ms").tolist()) == ([1], [6])


@pytest.mark.parametrize("key", [None, b"\xff"])
def test_a_record_without_its_own_key_is_bad_where_that_is_needed(key: bytes | None) -> None:
    assert looked_through(modelled(stream(VISITS)), (5, {"room": 1}), key=key)[0].column("offset").tolist() == []
    assert looked_through(modelled(BY_ROOM), (5, {"room": 1}), key=key)[0].column("offset").tolist() == [0]


def test_a_flat_map_makes_several_rows_of_a_record_and_a_raising_one_none() -> None:
    def rooms(row: Any) -> list[dict[str, Any]]:
        return [{"room": 10 // row["room"]}, {"room": 8}]

    flow = stream(VISITS).flat_map(rooms, room=LONG).select_key(room=col("room"))
    rows, _ = looked_through(modelled(flow), (5, {"room": 2}), (50, {"room": 0}), (6, {"room": 5}))
    assert (rows.column("offset").tolist(), rows.column("number").tolist()) == ([0, 0, 2, 2], [0, 1, 0, 1])
    assert [rows.keys[key] for key in rows.column("key").tolist()] == [5, 8, 2, 8]
    assert rows.column("own_ms").tolist() == [5, 5, 50, 50]
    assert [record.row["room"] for record in rows.records([1, 2])] == [8, 2]
