"""Sessions found by Spark are those that are found record by record, whatever is late and however long they last."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.recompute.conftest import framed

from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.operators.nodes import WindowedAggregate
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import stream
from recount.declare.windows import SessionWindows
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.operators.log_rows import CARRIED, ORDER, PLACE, STREAM_TIME, TIME
from recount.recompute.operators.log_sessions import Judged, in_sessions, judged_records, reachable, with_reachable
from recount.recompute.operators.log_windows import END, IS_LATE, START, placed

KEYS = 150
NOTHING_IS_REACHED_MS = 90
EVENTS = Topic(name="events", key="id", value=RecordSchema.of(who=STRING))
WINDOWS = [
    SessionWindows(gap_ms=4, grace_ms=3, reach_ms=12),
    SessionWindows(gap_ms=4, grace_ms=0, reach_ms=6),
    SessionWindows(gap_ms=4, grace_ms=3, max_duration_ms=9),
]
Spans = Counter[tuple[str, int, int, int, bool]]
"""Key, the record's offset, start, end, and whether it is late."""


@pytest.fixture
def records(database: Database) -> Frame:
    """Of every key some records from two partitions, a third of them read when time was further on; some derived."""
    dice, rows = random.Random(1), []
    for key in range(KEYS):
        for number in range(dice.randrange(1, 20)):
            at_ms, offset = dice.randrange(60), key * 100 + number
            place = (None, None, None) if dice.random() < 0.1 else ("events", dice.randrange(2), offset)
            stream_time_ms = None if place[0] is None else at_ms + dice.choice([0, 0, dice.randrange(25)])
            order = [{"topic": "events", "partition": place[1] or 0, "offset": offset}]
            rows.append((f"k{key}", *place, at_ms, None, order, stream_time_ms))
    step = pa.struct([("topic", pa.string()), ("partition", pa.int64()), ("offset", pa.int64())])
    kinds = (pa.string(), pa.string(), pa.int32(), *[pa.int64()] * 3, pa.list_(step), pa.int64())
    names = ("who", *PLACE, TIME, CARRIED, ORDER, STREAM_TIME)
    return framed(database, pa.schema(list(zip(names, kinds, strict=True))), rows)


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_records_are_placed_as_one_by_one(records: Frame, windows: SessionWindows) -> None:
    expected = Spans()
    for who, table in by_key(records).items():
        judged = judged_records(table)
        for one in in_sessions(windows, judged):
            expected[who, offset_of(judged[one.number]), one.start, one.end, one.is_late] += 1
    offset = F.col(ORDER).at(0).part("offset").alias("offset")
    rows = placed(node_of(windows), records).select("who", offset, START, END, IS_LATE).rows()
    assert Spans(tuple(row.values()) for row in rows) == expected
    assert any(is_late for *_, is_late in expected)


@pytest.mark.parametrize("since_ms", [20, 45, NOTHING_IS_REACHED_MS])
@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_reachable_are_the_same_sessions_as_one_by_one(records: Frame, windows: SessionWindows, since_ms: int) -> None:
    """All records are on time here, as those are of which some can be reached."""
    on_time = placed(node_of(windows), records.with_column(STREAM_TIME, F.lit(None).cast("long")))
    expected = set[tuple[str, int, int]]()
    for who, table in by_key(on_time).items():
        spans = sorted(set(zip(*(table.column(name).to_pylist() for name in (START, END)), strict=True)))
        expected |= {(who, *span) for span in reachable(windows, spans, since_ms, judged_records(table))}
    found = with_reachable("who", windows, on_time, (START, END), since_ms)
    assert {tuple(row.values()) for row in found.select("who", START, END).rows()} == expected
    assert bool(expected) is (since_ms < NOTHING_IS_REACHED_MS)


def by_key(frame: Frame) -> dict[str, Any]:
    table = frame.arrow()
    keys = table.column("who").to_pylist()
    return {who: table.take([at for at, key in enumerate(keys) if key == who]) for who in set(keys)}


def offset_of(record: Judged) -> int:
    return record.order[0][2]


def node_of(windows: SessionWindows) -> WindowedAggregate:
    node = stream(EVENTS).select_key(who=col("who")).windowed_by(windows).aggregate(n=count()).emit_final().node
    assert isinstance(node, WindowedAggregate)
    return node
