from __future__ import annotations

import numpy as np
import pytest
from bench.trend import Trend

MINUTES = np.arange(0, 3_600, 60.0)


def judged(values: object) -> str:
    trend = Trend.of(MINUTES.tolist(), np.asarray(values, dtype=float).tolist())
    assert trend is not None
    return trend.judgement


def test_a_line_that_keeps_rising_grows_by_its_slope_an_hour() -> None:
    trend = Trend.of(MINUTES.tolist(), (100 + MINUTES).tolist())

    assert trend is not None
    assert trend.judgement == "grows"
    assert trend.second.per_hour == pytest.approx(3_600)
    assert trend.second.mean == pytest.approx(100 + MINUTES[30:].mean())


def test_what_rises_at_first_and_then_stays_is_flat() -> None:
    assert judged(np.minimum(MINUTES, 1_200)) == "flat"


def test_what_rises_ever_more_slowly_levels_off() -> None:
    assert judged(1 - np.exp(-MINUTES / 1_200)) == "levels off"


def test_what_goes_up_and_down_within_its_scatter_is_flat() -> None:
    saw = MINUTES % 600
    assert judged(saw) == "flat"


def test_what_shrinks_falls() -> None:
    assert judged(10_000 - MINUTES) == "falls"


@pytest.mark.parametrize(("rise", "judgement"), [(0.04, "flat"), (0.06, "grows")])
def test_a_twentieth_of_the_mean_is_the_boundary(rise: float, judgement: str) -> None:
    span = MINUTES[-1] - MINUTES[30]
    slope = rise * 1_000 / span
    assert judged(1_000 + slope * (MINUTES - MINUTES[45])) == judgement


@pytest.mark.parametrize(("risen_to", "judgement"), [(1_000, "flat"), (1_100, "grows")])
def test_what_only_comes_back_to_where_it_was_is_flat(risen_to: float, judgement: str) -> None:
    second = np.linspace(800, risen_to, 30)
    assert judged([*[1_000] * 30, *second]) == judgement


def test_nothing_but_zeros_is_flat() -> None:
    assert judged(np.zeros(len(MINUTES))) == "flat"


def test_too_few_samples_have_no_trend() -> None:
    assert Trend.of([0, 1, 2, 3, 4, 5, 6], [0] * 7) is None
