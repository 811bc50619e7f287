"""The recompute joins records that are near in time, and compares no others, however many a key has."""

from __future__ import annotations

import random
from collections import Counter
from time import process_time

import pyarrow as pa
import pytest
from tests.spark.recompute.conftest import framed

from recount.declare.flow import stream
from recount.declare.operators.joins import StreamStreamJoin
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.recompute.decoding import IS_NULL
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.operators.carried import IS_NEW
from recount.recompute.operators.log_joins import paired
from recount.recompute.operators.log_rows import CARRIED, OFFSET, ORDER, PARTITION, SUPERSEDED, TIME, TOPIC, at_place

CLICKS = Topic(name="clicks", key="shop", value=RecordSchema.of(click=LONG))
SALES = Topic(name="sales", key="shop", value=RecordSchema.of(sale=LONG))
DAY_MS, KEYS = 86_400_000, 3
RECORDS = pa.schema([("__key", pa.string()), ("at", pa.int64()), ("id", pa.int64())])
MOST_CPU_S = 20.0
"""However busy the machine is."""


def joined(kind: str, before: str, after: str) -> StreamStreamJoin:
    sides = stream(CLICKS), stream(SALES)
    how = {"inner": sides[0].join, "left": sides[0].left_join, "outer": sides[0].outer_join}[kind]
    node = how(sides[1], before=before, after=after, grace="0 ms").node
    assert isinstance(node, StreamStreamJoin)
    return node


def drawn(database: Database, topic: Topic, field: str, records: int) -> Frame:
    """``records`` at all times of a day, of three keys."""
    dice = random.Random(topic.name)
    rows = [(str(dice.randrange(KEYS)), dice.randrange(DAY_MS), offset) for offset in range(records)]
    return shaped_as_read(framed(database, RECORDS, rows), topic, field, F.col("id"))


def shaped_as_read(frame: Frame, topic: Topic, field: str, value: Column) -> Frame:
    """``frame`` with the columns of records that lie in a log at the offsets ``id``, and the ``value`` of a field."""
    columns: dict[str, Column] = {
        field: value,
        TOPIC: F.lit(topic.name),
        PARTITION: F.lit(0).cast("int"),
        OFFSET: F.col("id"),
        TIME: F.col("at"),
        CARRIED: F.lit(None).cast("long"),
        IS_NULL: F.lit(False),
        SUPERSEDED: F.lit(False),
        IS_NEW: F.lit(True),
    }
    return frame.with_columns(columns).with_column(ORDER, at_place()).drop("id", "at")


def test_300_000_records_meet_30_000_of_three_keys_before_all_their_pairs_could_be_tried(
    database: Database,
) -> None:
    """There are 3 * 10^9 pairs of one key, and some 350,000 within five seconds of each other."""
    node = joined("outer", "5 s", "5 s")
    left, right = drawn(database, CLICKS, "click", 300_000), drawn(database, SALES, "sale", 30_000)
    rows = paired(node, left, right, alone_before_ms=DAY_MS, alone_since_ms=0).frame
    begun_s = process_time()
    [met] = rows.agg(
        F.count_if(F.col("click").is_not_null() & F.col("sale").is_not_null()).alias("pairs"),
        F.size(F.distinct_values(F.col("click"))).alias("clicks"),
        F.size(F.distinct_values(F.col("sale"))).alias("sales"),
    ).rows()
    assert process_time() - begun_s < MOST_CPU_S
    assert 300_000 < met["pairs"] < 400_000
    assert (met["clicks"], met["sales"]) == (300_000, 30_000), "without a partner they leave alone"


@pytest.mark.parametrize(
    ("kind", "before_ms", "after_ms"),
    [
        *(("outer", *interval) for interval in [(0, 0), (3, 0), (0, 2), (2, 5), (2**44, 2**45), (1, 864 * 10**12)]),
        ("inner", 2, 5),
        ("left", 5, 2),
    ],
)
def test_pairs_are_those_that_trying_all_finds_whatever_the_interval(
    database: Database, kind: str, before_ms: int, after_ms: int
) -> None:
    """Every time from 0 to 30, on the border of a stretch and beside it, under each of two keys and none."""
    node = joined(kind, f"{before_ms} ms", f"{after_ms} ms")
    clicks, sales = (
        [(key, at_ms) for at_ms in times for key in ("0", "1", None) if (key, at_ms) != ("1", 9)]
        for times in (range(31), range(0, 31, 3))
    )
    sides = at_times(database, CLICKS, "click", clicks), at_times(database, SALES, "sale", sales)
    met = paired(node, *sides, alone_before_ms=10**6, alone_since_ms=0).frame
    rows = met.select("__key", "click", "sale", TIME).rows()
    expected = tried(clicks, sales, before_ms, after_ms)
    lone = {"inner": set(), "left": {"click"}, "outer": {"click", "sale"}}[kind]
    expected = [(c, s) for c, s in expected if (c and s) or (c and "click" in lone) or (s and "sale" in lone)]
    texts = [(c or s, c and c[1], s and s[1], max(one[1] for one in (c, s) if one)) for c, s in expected]
    assert Counter(tuple(row.values()) for row in rows) == Counter(
        (one[0], click, sale, at_ms) for one, click, sale, at_ms in texts if one
    )


Record = tuple[str | None, int]


def tried(left: list[Record], right: list[Record], before_ms: int, after_ms: int) -> list[tuple[Record | None, ...]]:
    """All pairs whose times fit, and the records of both sides that are in none."""
    pairs = [
        (one, other)
        for one in left
        for other in right
        if one[0] is not None and one[0] == other[0] and one[1] - before_ms <= other[1] <= one[1] + after_ms
    ]
    met = [set(side) for side in zip(*pairs, strict=True)]
    return [
        *pairs,
        *((one, None) for one in left if one not in met[0]),
        *((None, one) for one in right if one not in met[1]),
    ]


def at_times(database: Database, topic: Topic, field: str, records: list[Record]) -> Frame:
    """One record for each key and time, whose field says its time."""
    rows = [(key, at_ms, offset) for offset, (key, at_ms) in enumerate(records)]
    return shaped_as_read(framed(database, RECORDS, rows), topic, field, F.col("at"))
