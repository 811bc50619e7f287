"""Which records reach the aggregation, which of them advance whose clock, and what they look like there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recount.advise.lens.engine_clocks import Reaching, kafka_streams, reaching, structured_streaming
from recount.advise.lens.lens_log import Records
from recount.advise.lens.lens_stretch import NEVER, Modelled, Stretch
from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.schema import LONG, STRING, RecordSchema, header
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.formats.record_decoder import GivenHeaders

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
    headers: Sequence[GivenHeaders] = (),
) -> tuple[Reaching, Stretch]:
    """Records of partition 0, time and value, in batches that begin at ``cuts``; all recorded at 1,000 ms."""
    bounds = {0: np.array([0, *cuts, len(records)], np.int64)}
    stretch = Stretch(
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
        headers=headers,
    )
    return reaching(found, stretch, [log]), stretch


def test_a_field_that_is_a_header_is_looked_at_as_others_are() -> None:
    assert isinstance(VISITS.value, RecordSchema)
    fields = {**VISITS.value.fields, "tenant": header("tenant")}
    visits = replace(VISITS, value=RecordSchema.of(**fields))
    found = modelled(stream(visits).filter(col("tenant") == "blue").select_key(room=col("room")))
    blue, red = ([{"key": "tenant", "value": tenant}] for tenant in (b"blue", b"red"))
    visit = {"room": 1, "user": "ann"}
    rows, _ = looked_through(found, (5, visit), (6, visit), (7, visit), headers=[blue, red, blue])
    assert rows.offset.tolist() == [0, 2]


BY_ROOM = stream(VISITS).select_key(room=col("room"))


def test_a_filtered_record_advances_recount_and_perhaps_spark_but_not_kafka_streams() -> None:
    found = modelled(BY_ROOM.filter(col("user") == "ann"))
    ann, bob = {"room": 1, "user": "ann"}, {"room": 1, "user": "bob"}
    rows, stretch = looked_through(found, (5, ann), (50, bob), (6, ann), (7, ann), cuts=[2, 3])
    assert (rows.offset.tolist(), rows.own_ms.tolist()) == ([0, 2, 3], [5, 50, 50])
    assert kafka_streams(found, stretch, rows, 1).most.tolist() == [5, 6, 7]
    spark = structured_streaming(stretch, rows)
    assert (spark.least.tolist(), spark.most.tolist()) == ([NEVER, NEVER, 5], [NEVER, 50, 50])


@pytest.mark.parametrize(
    "bad",
    [(50, b"{"), (50, {"user": "ann"}), (2_001, {"room": 1})],
    ids=["no JSON", "a required field is missing", "more than max_future after its batch"],
)
def test_a_bad_record_advances_nothing(bad: tuple[int, Value]) -> None:
    rows, _ = looked_through(modelled(BY_ROOM), bad, (6, {"room": 1}))
    assert (rows.offset.tolist(), rows.own_ms.tolist(), rows.seen_ms.tolist()) == ([1], [6], [6])
    assert rows.read == 2


def test_a_record_without_the_new_key_does_not_advance_recount() -> None:
    by_user = stream(VISITS).select_key(user=col("user"))
    rows, _ = looked_through(modelled(by_user), (50, {"room": 1}), (6, {"room": 1, "user": "ann"}))
    assert (rows.offset.tolist(), rows.own_ms.tolist()) == ([1], [6])


@pytest.mark.parametrize("key", [None, b"\xff"])
def test_a_record_without_its_own_key_is_bad_where_that_is_needed(key: bytes | None) -> None:
    assert looked_through(modelled(stream(VISITS)), (5, {"room": 1}), key=key)[0].offset.tolist() == []
    assert looked_through(modelled(BY_ROOM), (5, {"room": 1}), key=key)[0].offset.tolist() == [0]


def test_the_event_time_can_be_a_field() -> None:
    timed = Topic(name="visits", key="id", value=VISITS.value, event_time="at")
    flow = stream(timed).select_key(room=col("room"))
    rows, _ = looked_through(modelled(flow), (900, {"room": 1, "at": 7}), (900, {"room": 1}))
    assert (rows.offset.tolist(), rows.time_ms.tolist()) == ([0], [7])


def test_a_flat_map_makes_several_rows_of_a_record_and_a_raising_one_none() -> None:
    def rooms(row: Any) -> list[dict[str, Any]]:
        return [{"room": 10 // row["room"]}, {"room": 8}]

    flow = stream(VISITS).flat_map(rooms, room=LONG).select_key(room=col("room"))
    rows, _ = looked_through(modelled(flow), (5, {"room": 2}), (50, {"room": 0}), (6, {"room": 5}))
    assert (rows.offset.tolist(), rows.number.tolist()) == ([0, 0, 2, 2], [0, 1, 0, 1])
    assert [rows.keys[key] for key in rows.key.tolist()] == [5, 8, 2, 8]
    assert rows.own_ms.tolist() == [5, 5, 50, 50]
    assert [record.row["room"] for record in rows.records(np.array([1, 2]))] == [8, 2]
