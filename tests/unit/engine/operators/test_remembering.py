"""Held updates, deduplication and custom processors: the same winners and the same states as in the interpreter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from tests.unit.engine.operators.feeding import (
    LEFT,
    RIGHT,
    Event,
    assert_same,
    by_partition,
    closing,
    cut,
    cuts,
    fed,
    interpreted,
    keyed,
    latest,
    law,
    logs,
    read_by,
    restarts,
    topics,
    topology,
)

from recount.declare.expressions import col
from recount.declare.flow import stream
from recount.declare.operators.nodes import KEY
from recount.declare.operators.processing import KeyState
from recount.declare.schema import LONG, STRING
from recount.engine.stage.partials import NotExpressible
from recount.runtime.errors import Terminal

left = keyed(LEFT)
Row = Mapping[str, Any]


class TestSuppression:
    HELD = {
        "limit": topology(left.to_table().emit_after("10 ms")),
        "limit and rows": topology(left.to_table().emit_after("10 ms", max_rows=1)),
    }

    @pytest.mark.parametrize("name", HELD)
    @law
    @given(log=logs, at=cuts, again=restarts)
    def test_the_last_update_of_a_key_does_not_depend_on_batches(
        self, name: str, log: Sequence[Event], at: Sequence[int], again: frozenset[int]
    ) -> None:
        held = self.HELD[name]
        batches = [*cut(read_by(held, log), at), closing("left"), []]
        engine = fed(held, batches, again)
        reference = interpreted(held, [event for batch in batches for event in by_partition(batch)])
        # what closes the log need not leave itself
        ends = [
            {key: one for key, one in latest(run.written).items() if key in ("a", "b")} for run in (engine, reference)
        ]
        assert ends[0] == ends[1]

    def test_an_update_leaves_when_the_frontier_has_passed_the_first_one_held_by_the_limit(self) -> None:
        running = fed(self.HELD["limit"], [[Event(5, "a", {"l": 1}), Event(14, "a", {"l": 2}), Event(14, "b", {}, 1)]])
        assert running.written == []
        running.batch([Event(15, "c"), Event(15, "c", {}, 1)])
        assert [(key, dict(value)["l"]) for key, value, _, _ in running.written] == [("a", 2)]

    def test_the_oldest_leaves_early_where_more_rows_are_held_than_may_be(self) -> None:
        running = fed(self.HELD["limit and rows"], [[Event(7, "a"), Event(6, "b"), Event(8, "c")]])
        assert [key for key, _, _, _ in running.written] == ["b", "a"]
        assert running.held()["held"] == 1


class TestDeduplication:
    FIRST = {
        "by offset": topology(stream(LEFT).deduplicate(KEY, horizon="8 ms")),
        "by event time": topology(left.deduplicate("word", horizon="8 ms")),
        "by a number": topology(left.deduplicate(col("l"), horizon="8 ms")),
        "then joined": topology(
            left.deduplicate("word", horizon="8 ms").left_join(keyed(RIGHT), before="5 ms", after="5 ms", grace="2 ms")
        ),
    }

    @pytest.mark.parametrize("name", FIRST)
    @law
    @given(log=logs, at=cuts, again=restarts)
    def test_the_same_records_win_however_the_log_is_cut(
        self, name: str, log: Sequence[Event], at: Sequence[int], again: frozenset[int]
    ) -> None:
        first = self.FIRST[name]
        read = read_by(first, log)
        if name == "by offset":
            read = [replace(event, partition=len(event.key or "") % 2) for event in read]
        if name == "then joined":
            # a record without an id moves the clock of the join and not that of the deduplication
            read = [
                event for event in read if event.key and (event.topic == "right" or (event.value or {}).get("word"))
            ]
        end = closing(*topics(first))
        assert_same(fed(first, [*cut(read, at), end], again), interpreted(first, [*read, *end]))

    @pytest.mark.parametrize("name", FIRST)
    def test_winners_are_forgotten_when_no_duplicate_can_be_on_time(self, name: str) -> None:
        first = self.FIRST[name]
        log = [Event(10 * at, "a", {"l": at, "word": "w"}, 0, "left") for at in range(40)]
        running = fed(first, [log, closing(*topics(first)), []])
        assert len(running.written) >= 1
        assert running.held()["winners"] <= 2 and running.held()["waiting"] <= 2

    def test_a_winner_is_remembered_while_the_last_duplicate_can_be_on_time(self) -> None:
        running = fed(self.FIRST["by offset"], [[Event(10, "a"), Event(0, "z", {}, 1)], [Event(26, "b")]])
        running.batch([Event(26, "c", {}, 1), Event(18, "a")])
        assert running.fates["left", 0, 2] == "deduplicated"
        assert running.held()["winners"] == 3
        running.batch([Event(27, "b"), Event(27, "c", {}, 1)])
        assert running.held()["winners"] == 2


def counted(row: Row, state: KeyState) -> Iterable[Row]:
    """Counts, sets timers and now and then forgets: the order of records and timers shows."""
    n = state.remembered["n"] = state.remembered.get("n", 0) + 1
    if row["l"] is not None:
        state.schedule(state.timestamp_ms + 5 * row["l"])
    if n > 4:
        state.remembered.clear()
    return [{"n": n, "what": "record"}] * (n % 3)


def reminded(at_ms: int, state: KeyState) -> Iterable[Row]:
    n = state.remembered.get("n", 0)
    if at_ms % 3 == 0 and n < 3:
        state.schedule(at_ms + 7)
    if n == 2:
        state.remembered["n"] = 1
    return [{"n": n, "what": "timer"}]


class TestProcessor:
    MADE = {"n": LONG, "what": STRING}
    PROCESSED = topology(left.process(counted, on_timer=reminded, **MADE))

    @law
    @given(log=logs, at=cuts, again=restarts)
    def test_records_and_timers_take_turns_as_in_the_interpreter_of_one_partition(
        self, log: Sequence[Event], at: Sequence[int], again: frozenset[int]
    ) -> None:
        read = [replace(event, partition=0) for event in read_by(self.PROCESSED, log)]
        end = closing("left", partitions=1)
        engine = fed(self.PROCESSED, [*cut(read, at), end], again, partitions=1)
        reference = interpreted(self.PROCESSED, [*read, *end], partitions=1)
        assert_same(engine, reference)
        for key in ("a", "b"):
            assert [one for one in engine.written if one[0] == key] == [
                one for one in reference.written if one[0] == key
            ]

    @law
    @given(log=logs, one=cuts, other=cuts)
    def test_with_several_partitions_nothing_depends_on_batches(
        self, log: Sequence[Event], one: Sequence[int], other: Sequence[int]
    ) -> None:
        read = [replace(event, partition=int(event.key == "b")) for event in read_by(self.PROCESSED, log)]
        runs = [fed(self.PROCESSED, [*cut(read, at), closing("left")]) for at in (one, other)]
        for key in ("a", "b"):
            assert [row for row in runs[0].written if row[0] == key] == [
                row for row in runs[1].written if row[0] == key
            ]
        assert runs[0].fates == runs[1].fates

    def test_a_key_in_two_partitions_must_go_through_a_topic_first(self) -> None:
        with pytest.raises(Terminal, match="repartition through a topic first"):
            fed(self.PROCESSED, [[Event(0, "a", {"l": 9})], [Event(0, "a", {"l": 9}, 1)]])

    def test_a_key_of_which_nothing_is_remembered_is_forgotten(self) -> None:
        quiet = topology(left.process(lambda row, _: [{"n": row["l"]}], n=LONG))
        assert fed(quiet, [[Event(0, "a", {"l": 1}), Event(0, "b", {"l": 1})]]).held() == {"keys": 0}

    @pytest.mark.parametrize("remembered", [{1: 2}, {"n": (1, 2)}, {"n": {1}}, {"n": float("nan")}])
    def test_what_json_would_change_is_refused(self, remembered: dict[Any, Any]) -> None:
        def on_record(row: Row, state: KeyState) -> Iterable[Row]:
            state.remembered.update(remembered)
            return ()

        with pytest.raises(Terminal, match="plain JSON"):
            fed(topology(left.process(on_record, n=LONG)), [[Event(0)]])

    def test_what_was_held_back_or_derived_cannot_be_processed(self) -> None:
        held = left.deduplicate("word", horizon="8 ms").process(counted, **self.MADE)
        with pytest.raises(NotExpressible):
            fed(topology(held), [])
