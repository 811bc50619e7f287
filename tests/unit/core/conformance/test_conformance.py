"""The conformance command's judgement: what passes, what fails, and what a rule can and cannot excuse."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from recount.core.conformance import by_design
from recount.core.conformance.outcome import interpreted
from recount.core.conformance.report import Verdict, judged, verdicts
from recount.core.errors import RecountError

Case = dict[str, Any]


def record(ts: int, value: object = "v", key: str | None = "k", topic: str = "input") -> dict[str, Any]:
    return {"topic": topic, "key": key, "value": value, "ts": ts}


def windowed(value: object, start: int, end: int, ts: int, key: str = "k") -> dict[str, Any]:
    return {"key": key, "window_start": start, "window_end": end, "value": value, "timestamp": ts}


def plain(value: object, ts: int, key: str | None = "k") -> dict[str, Any]:
    return {"key": key, "value": value, "timestamp": ts}


def case(operator: str, config: Mapping[str, Any], records: list[dict[str, Any]], **expected: Any) -> Case:
    asserted = {"expected_final": [], "expected_updates": None, "late_dropped": None, "notes": ""}
    return {
        "id": "Test.case",
        "source": "apache/kafka",
        "operator": operator,
        "config": dict(config),
        "input": records,
        **asserted,
        **expected,
    }


def verdict(document: Case) -> Verdict:
    return judged(document, interpreted)


COUNTING = {"size_ms": 10, "advance_ms": 10, "grace_ms": 0, "aggregate": "count", "emit": "update"}
COUNTED = case("tumbling", COUNTING, [record(1), record(2)], expected_final=[windowed(2, 0, 10, 2)])
CONCATENATING = {"aggregate": "concat", "init": "0", "sep": "+"}
JOINING = {"left": "L", "right": "R", "joiner": "{l}+{r}", "before_ms": 10, "after_ms": 10, "grace_ms": 0}


def left(ts: int, value: str = "l", key: str | None = "k") -> dict[str, Any]:
    return record(ts, value, key, "L")


def right(ts: int, value: str = "r", key: str | None = "k") -> dict[str, Any]:
    return record(ts, value, key, "R")


class TestVerdicts:
    def test_a_case_that_agrees_passes(self) -> None:
        assert verdict(COUNTED).result == "passed"

    @pytest.mark.parametrize(
        "change",
        [
            {"expected_final": [windowed(3, 0, 10, 2)]},
            {"expected_final": [windowed(2, 0, 10, 1)]},
            {"expected_final": []},
            {"expected_updates": [windowed(2, 0, 10, 2), windowed(1, 0, 10, 1)]},
            {"expected_steps": [{"after_input": 1, "emitted": []}]},
            {"late_dropped": [0]},
            {"null_dropped": [1]},
            {"late_windows": [[0, 0, 10]]},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_a_case_that_asserts_something_else_fails_with_its_first_difference(self, change: Case) -> None:
        judgement = verdict({**COUNTED, **change})
        assert judgement.result == "failed"
        assert "expected" in judgement.why

    def test_updates_may_be_asserted_as_a_multiset(self) -> None:
        backwards = [windowed(2, 0, 10, 2), windowed(1, 0, 10, 1)]
        assert verdict({**COUNTED, "expected_updates": backwards, "updates_order": "multiset"}).result == "passed"

    def test_a_subset_of_the_final_results_may_be_asserted(self) -> None:
        document = {**COUNTED, "input": [record(1), record(2), record(15)]}
        assert verdict(document).result == "failed"
        assert verdict({**document, "final_is_subset": True}).result == "passed"

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"operator": "teleport"}, "unknown operator teleport"),
            ({"config": {**COUNTING, "magic": 1}}, "unknown configuration key of tumbling magic"),
            ({"config": {**COUNTING, "aggregate": "magic"}}, "unknown aggregate magic"),
            ({"expected_magic": []}, "unknown field expected_magic"),
            ({"updates_order": "magic"}, "unknown updates_order magic"),
        ],
    )
    def test_what_is_unknown_fails_by_name_and_is_never_passed_over(self, change: Case, named: str) -> None:
        judgement = verdict({**COUNTED, **change})
        assert (judgement.result, judgement.why) == ("failed", named)

    def test_a_folder_is_judged_file_by_file_and_a_case_can_be_picked(self, tmp_path: Path) -> None:
        (tmp_path / "b.json").write_text(json.dumps([{**COUNTED, "id": "second"}]))
        (tmp_path / "a.json").write_text(json.dumps([{**COUNTED, "id": "first"}]))
        assert [one.id for one in verdicts(tmp_path, run=interpreted)] == ["first", "second"]
        assert [one.id for one in verdicts(tmp_path, run=interpreted, only="second")] == ["second"]

    def test_a_folder_without_cases_and_an_unknown_case_are_errors(self, tmp_path: Path) -> None:
        with pytest.raises(RecountError):
            list(verdicts(tmp_path, run=interpreted))
        (tmp_path / "a.json").write_text(json.dumps([COUNTED]))
        with pytest.raises(RecountError):
            list(verdicts(tmp_path, run=interpreted, only="nowhere"))


def test_a_topic_can_be_joined_with_itself() -> None:
    """The results in the order of Kafka Streams' inner join: the record as left one, then as right one, with itself."""
    itself = {**JOINING, "right": "L", "join_type": "inner"}
    expected = [plain("a+a", 1), plain("b+a", 2), plain("a+b", 2), plain("b+b", 2)]
    document = case("stream-stream-join", itself, [left(1, "a"), left(2, "b")])
    assert verdict({**document, "expected_final": expected, "expected_updates": expected}).result == "passed"


class TestRules:
    """Each rule excuses the difference that it is about, and no other."""

    def assert_excused(self, document: Case, rule: str) -> None:
        judgement = verdict(document)
        assert judgement.result == "not expressible"
        assert judgement.why.startswith(rule)

    def test_a_late_record_that_the_peer_joins(self) -> None:
        inputs = [right(5), left(90), left(5, "late")]
        document = case("stream-stream-join", {**JOINING, "join_type": "inner"}, inputs)
        self.assert_excused({**document, "expected_final": [plain("late+r", 5)]}, by_design.LATE_JOIN)
        assert verdict({**document, "expected_final": [plain("l+r", 90)]}).result == "failed"

    def test_a_partner_that_the_peers_store_has_forgotten(self) -> None:
        inputs = [right(5), right(90), left(5)]
        document = case("stream-stream-join", {**JOINING, "join_type": "inner"}, inputs)
        self.assert_excused(document, by_design.OWN_TIME_JOIN)

    def test_a_record_late_on_one_side_of_a_join_with_itself_is_excused_for_that_side_alone(self) -> None:
        """At 115 ms, 100 ms is late as a right record (before 10 ms), and not as a left one (after 30 ms)."""
        itself = {**JOINING, "right": "L", "after_ms": 30, "join_type": "inner"}
        document = case("stream-stream-join", itself, [left(115, "x"), left(100, "y")])
        ours, theirs = [plain("x+x", 115), plain("y+x", 115)], [plain("y+y", 100)]
        assert verdict({**document, "expected_final": ours}).result == "passed"
        self.assert_excused({**document, "expected_final": theirs + ours}, by_design.LATE_JOIN)
        assert verdict({**document, "expected_final": ours[1:]}).result == "failed"

    def test_a_null_that_the_peer_emits_early(self) -> None:
        inputs = [left(5), left(20, "x"), right(12)]
        document = case("stream-stream-join", {**JOINING, "join_type": "left"}, inputs)
        expected = [plain("l+null", 5), plain("l+r", 12), plain("x+r", 20)]
        self.assert_excused({**document, "expected_final": expected, "expected_updates": expected}, by_design.ALONE)
        assert verdict({**document, "expected_final": expected[:2]}).result == "failed"

    def test_a_join_grace_by_the_streams_own_time(self) -> None:
        config = {"left": "L", "right": "R", "join_type": "inner", "table_versioned": True, "grace_ms": 2}
        document = case("stream-table-join", {**config, "joiner": "{l}+{r}"}, [right(0), left(0), left(2, "x")])
        self.assert_excused({**document, "expected_final": [plain("l+r", 0)]}, by_design.TABLE_TIME)

    def test_a_tombstone_where_there_was_no_result(self) -> None:
        config = {"left": "L", "right": "R", "join_type": "inner", "joiner": "{l}+{r}"}
        unversioned = {**config, "left_versioned": False, "right_versioned": False}
        document = case("table-table-join", unversioned, [right(1), record(2, None, "k", "L"), left(3)])
        expected = [plain(None, 2), plain("l+r", 3)]
        self.assert_excused(
            {**document, "expected_final": expected[1:], "expected_updates": expected}, by_design.TOMBSTONE
        )

    def test_a_window_that_the_peers_store_lost(self) -> None:
        config = {**COUNTING, "emit": "close"}
        document = case("tumbling", config, [record(1), record(12), record(50)])
        self.assert_excused({**document, "expected_final": [windowed(1, 0, 10, 1)]}, by_design.NO_EXPIRY)
        assert verdict({**document, "expected_final": [windowed(2, 0, 10, 1)]}).result == "failed"

    def test_a_suppression_that_lets_go_a_millisecond_early(self) -> None:
        upstream = {"gap_ms": 5, "grace_ms": 0, "aggregate": "count", "emit": "update"}
        config = {"mode": "until_window_closes", "wait_ms": 5, **{k: v for k, v in upstream.items() if k != "emit"}}
        config["upstream"] = {"operator": "session", "config": upstream}
        document = case("suppress", config, [record(0), record(5, key="other")])
        self.assert_excused({**document, "expected_final": [windowed(1, 0, 0, 0)]}, by_design.CLOSING)

    def test_a_closed_session_that_a_later_record_joins_to_an_open_one(self) -> None:
        config = {"gap_ms": 5, "grace_ms": 0, "aggregate": "count", "emit": "close"}
        document = case("session", config, [record(0), record(6), record(7, key="other"), record(3)])
        expected = [windowed(1, 0, 0, 0)]
        self.assert_excused({**document, "expected_final": expected}, by_design.REVISED)
        assert verdict({**document, "expected_final": [*expected, windowed(3, 0, 6, 6)]}).result == "failed"

    def test_a_record_that_the_peer_does_not_find_again_because_its_own_window_was_late(self) -> None:
        config = {"time_difference_ms": 3, "size_ms": 3, "grace_ms": 2, "emit": "close", **CONCATENATING}
        inputs = [record(54, "0"), record(51, "1"), record(52, "2"), record(55, "3")]
        document = case("sliding", config, inputs)
        self.assert_excused({**document, "expected_final": [windowed("0+2", 49, 52, 52)]}, by_design.ON_TIME)
        assert verdict({**document, "expected_final": [windowed("0+0", 80, 83, 83)]}).result == "failed"

    def test_an_update_that_the_peer_sends_twice(self) -> None:
        config = {"time_difference_ms": 6, "size_ms": 6, "grace_ms": 0, "emit": "update", **CONCATENATING}
        first, second = windowed("0+a", 1, 7, 7), windowed("0+b", 8, 14, 14)
        document = case("sliding", config, [record(7, "a"), record(14, "b")], expected_final=[first, second])
        self.assert_excused({**document, "expected_updates": [first, second, second]}, by_design.ONCE)
        assert verdict({**document, "expected_updates": [first, second, first]}).result == "failed"

    def test_an_emission_throttled_by_a_wall_clock(self) -> None:
        config = {**COUNTING, "emit": "close", "emit_interval_ms": 1000, "retention_ms": 1000}
        document = case("tumbling", config, [record(1), record(12), record(25)])
        self.assert_excused({**document, "expected_final": [windowed(1, 0, 10, 1)]}, by_design.NO_THROTTLE)

    def test_a_null_value_that_advances_stream_time(self) -> None:
        config = {"time_difference_ms": 10, "size_ms": 10, "grace_ms": 0, "aggregate": "count", "emit": "update"}
        document = case("sliding", config, [record(90, None), record(20)])
        self.assert_excused({**document, "expected_final": [windowed(1, 10, 20, 20)]}, by_design.NULL_VALUE)


class TestOperators:
    """One case of each operator, as the format's README words its result."""

    def test_a_suppressed_table_count_emits_early_when_it_is_full(self) -> None:
        config = {"mode": "until_time_limit", "wait_ms": 2**61, "max_records": 1}
        config["upstream"] = {"operator": "ktable-count", "config": {"group_by": "value"}}
        inputs = [record(0, "v1", "k1"), record(1, "v2", "k1"), record(2, "v1", "k2"), record(3, "x", "x")]
        updates = [plain(0, 1, "v1"), plain(1, 1, "v2"), plain(1, 2, "v1")]
        document = case("suppress", config, inputs, expected_final=updates[1:], expected_updates=updates)
        assert verdict(document).result == "passed"

    def test_a_limit_of_nothing_holds_nothing_back(self) -> None:
        config = {"mode": "until_time_limit", "wait_ms": 0, "upstream": {"operator": "tumbling", "config": COUNTING}}
        updates = [windowed(1, 0, 10, 1), windowed(2, 0, 10, 2)]
        document = case(
            "suppress", config, [record(1), record(2)], expected_final=updates[1:], expected_updates=updates
        )
        assert verdict(document).result == "passed"

    @pytest.mark.parametrize(
        ("operator", "config", "final"),
        [
            ("count", {}, 2),
            ("reduce", {"sep": "+"}, "a+b"),
            ("aggregate", {"aggregate": "concat", "init": "0", "sep": "+"}, "0+a+b"),
            ("aggregate", {"aggregate": "strlen-sum"}, 2),
            ("aggregate", {"aggregate": "sorted-concat", "init": ""}, "ab"),
        ],
    )
    def test_an_unwindowed_aggregate_drops_null_values(self, operator: str, config: Case, final: object) -> None:
        inputs = [record(5, "a"), record(9, None), record(3, "b")]
        document = case(operator, config, inputs, expected_final=[plain(final, 5)], null_dropped=[1])
        assert verdict(document).result == "passed"
