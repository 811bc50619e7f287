"""Rows that an operator has held back are judged as it saw them, wherever the log is cut and whoever they meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.engine.by_hand import EXACT, LATEST, LEFT, assert_law, drawn_by_hand, left
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.random_flows import TOPICS
from tests.unit.engine.random_topology_logs import Cut, Event, closing
from tests.unit.engine.topology_runs import by_engine

from recount.declare.aggregates import count, reduce
from recount.declare.expressions import col
from recount.declare.flow import cogroup, stream
from recount.declare.operators.nodes import KEY
from recount.declare.operators.processing import KeyState
from recount.declare.schema import LONG
from recount.declare.windows import Windows, session, sliding, tumbling
from recount.engine.stage.map_stage import LATE_SCHEMA

KEYED = LEFT.select_key(key=col(KEY))
FIRST = KEYED.deduplicate("lw", horizon="3 ms")
FLAGGED = KEYED.filter(col("lb"))
OWN_VERSIONS = KEYED.to_table(versioned=True).select(rn=col("ln"))
WAITING = KEYED.left_join_table(OWN_VERSIONS, grace="20 ms").select("ln", "lw")
TENS, NEAR = tumbling("10 ms", grace="0 s"), {"before": "2 ms", "after": "2 ms", "grace": "0 s"}
OWN_TOPIC_AGAIN = {
    "merge": FIRST.merge(FLAGGED).windowed_by(TENS).aggregate(n=count()).emit_final(),
    "cogroup": cogroup(one=FIRST, other=FLAGGED)
    .windowed_by(session("3 ms", grace="0 s"))
    .aggregate(n=count())
    .emit_final(),
    "join": FIRST.join(FLAGGED.select(rn=col("ln")), **NEAR),
    "join, the other way round": FLAGGED.left_join(FIRST.select(rn=col("ln")), **NEAR),
    "table of the own topic": WAITING.windowed_by(TENS).aggregate(n=count()).emit_final(),
    "both": WAITING.merge(FIRST).windowed_by(sliding("6 ms", grace="0 s")).aggregate(n=count()).emit_final(),
    "held twice": FIRST.merge(FLAGGED).deduplicate("ln", horizon="9 ms"),
}
"""A stream that is held back, and meets its own topic again."""


@pytest.mark.parametrize("at", [[], [2], [3], [1, 2, 3, 4]])
@pytest.mark.parametrize("name", OWN_TOPIC_AGAIN)
def test_a_row_that_was_held_back_is_judged_alike_wherever_the_log_is_cut(name: str, at: list[int]) -> None:
    flow = OWN_TOPIC_AGAIN[name]
    drawn = drawn_by_hand(flow, replace(EXACT, has_bounds=flow.node.fields.keys() >= {"window_start"}), {"left": 2})
    # 60 has no id: it makes nobody late for the deduplication, but for those whom it meets on the other path
    log = [left(60, None), left(5, n=2), left(9, "b", partition=1), left(6, n=3, flag=False), left(80), left(70, "c")]
    bounds = [0, *at, len(log)]
    assert_law(replace(drawn, any_order=True), *(Cut(log[start:end], restarts=True) for start, end in pairwise(bounds)))


def test_whoever_was_not_held_back_is_judged_by_all_records_where_held_back_ones_arrive() -> None:
    drawn = drawn_by_hand(OWN_TOPIC_AGAIN["merge"], EXACT, {"left": 1})
    told = by_engine(drawn, [Cut([left(60, None, flag=False), left(5)]), closing(drawn.partitions)])
    assert [(window, cells[-1]) for key, window, *_, cells in told.rows["out"] if key == "a"] == [
        ((0, 10), ("n", "int", 1))
    ]
    stream_time, margin = list(LATE_SCHEMA).index("stream_time_ms"), list(LATE_SCHEMA).index("margin_ms")
    assert [(row[stream_time], row[margin]) for row in told.late] == [(60, 50)]


@pytest.mark.parametrize("windows", [session("4 ms", grace="0 s"), sliding("4 ms", grace="0 s")], ids=str)
@pytest.mark.parametrize("is_table_ahead", [True, False])
def test_who_overtook_a_row_that_was_held_back_does_not_show(windows: Windows, is_table_ahead: bool) -> None:
    #  left    5 ── 9 ── 13 ── 17 ── 7    in the order of the log 7 is in a session that lasts to 17; alone it is late
    versions = stream(TOPICS["versions"]).to_table(versioned=True).select("vn")
    waiting = LEFT.left_join_table(versions, grace="0 s").select("ln")
    flow = waiting.windowed_by(windows).aggregate(n=count()).emit_final()
    drawn = drawn_by_hand(flow, EXACT, {"left": 1, "versions": 1})
    table = Event("versions", LogRecord(timestamp_ms=90, key=b"x", value=b'{"vn": 1}'))
    log = [left(at) for at in (5, 9, 13, 17, 7)]
    cuts = [Cut([table]), *(Cut([one]) for one in log)] if is_table_ahead else [Cut(log), Cut([table])]
    assert_law(drawn, *cuts)
    assert len(by_engine(drawn, [*cuts, closing(drawn.partitions)]).late) == 1


@pytest.mark.parametrize("at", [[], [1], [2], [1, 2]])
def test_an_update_that_was_held_back_is_judged_as_it_was_read_wherever_the_log_is_cut(at: list[int]) -> None:
    held = LEFT.to_table().emit_after("20 ms").to_stream()
    drawn = drawn_by_hand(held.windowed_by(TENS).aggregate(n=count()).emit_final(), EXACT, {"left": 1})
    log = [left(50, key=b"x"), left(1, key=b"y"), left(60, key=b"z")]
    cuts = [Cut(log[start:end], restarts=True) for start, end in pairwise([0, *at, len(log)])]
    assert_law(replace(drawn, any_order=True), *cuts)
    assert [row[2] for row in by_engine(drawn, [*cuts, closing(drawn.partitions)]).late] == [1]


def test_a_fold_of_all_time_takes_the_rows_of_timers_that_go_off_behind_later_records() -> None:
    """They lie in no partition, so none of them comes from another one."""

    def on_record(row: Mapping[str, Any], state: KeyState) -> Iterator[dict[str, Any]]:
        state.schedule(state.timestamp_ms + 5)
        yield {"m": row["ln"]}

    def on_timer(at_ms: int, state: KeyState) -> Iterator[dict[str, Any]]:
        yield {"m": 100}

    rows = LEFT.process(on_record, on_timer=on_timer, m=LONG)
    folded = rows.aggregate(sums=reduce("m", lambda one, other: 10 * one + other)).to_stream()
    assert_law(drawn_by_hand(folded, LATEST, {"left": 1}), Cut([left(1), left(30, n=2)]), Cut([left(31, n=3)]))
