"""Two streams that left behind something else are told apart, in whatever it is."""

from __future__ import annotations

from tests.faults.remains import differences

LEFT = {"late": ["a", "b"], "topic *-out": ["k: 0: 1", "k: 1: 2"]}


def test_what_is_the_same_has_no_differences() -> None:
    assert differences(LEFT, {what: list(rows) for what, rows in LEFT.items()}) == []


def test_a_row_that_is_there_twice_or_not_at_all_is_a_difference() -> None:
    assert differences(LEFT, {**LEFT, "late": ["a", "b", "b"]}) == ["late: 0 missing, 1 too many; too many: b"]
    assert differences(LEFT, {**LEFT, "late": ["a"]}) == ["late: 1 missing, 0 too many; missing b"]


def test_another_order_of_a_key_is_a_difference() -> None:
    assert differences(LEFT, {**LEFT, "topic *-out": ["k: 0: 2", "k: 1: 1"]}) == [
        "topic *-out: 2 missing, 2 too many; missing k: 0: 1"
    ]


def test_a_table_that_is_gone_is_a_difference() -> None:
    assert differences(LEFT, {"late": LEFT["late"]}) == ["topic *-out: 2 missing, 0 too many; missing k: 0: 1"]
