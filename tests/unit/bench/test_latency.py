from __future__ import annotations

from bench.latency import became_visible_s


def test_a_record_is_visible_from_the_moment_the_results_count_it() -> None:
    assert became_visible_s([1.0, 2.0, 3.0], [0, 2, 3], 0, 3).tolist() == [2.0, 2.0, 3.0]


def test_records_before_the_first_one_asked_for_do_not_count() -> None:
    assert became_visible_s([1.0, 2.0, 3.0], [0, 2, 3], 2, 3).tolist() == [3.0]


def test_a_record_that_never_became_visible_is_left_out() -> None:
    assert became_visible_s([1.0, 2.0], [0, 2], 0, 3).tolist() == [2.0, 2.0]


def test_a_result_that_takes_back_a_count_makes_nothing_invisible() -> None:
    assert became_visible_s([1.0, 2.0, 3.0], [2, 1, 3], 0, 3).tolist() == [1.0, 1.0, 3.0]
