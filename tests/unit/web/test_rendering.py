"""How numbers, shares, sizes and times are written on the pages."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError

from recount.web import rendering
from recount.web.rendering import UNKNOWN


@pytest.mark.parametrize(
    ("number", "told"),
    [(None, UNKNOWN), (0, "0"), (0.123, "0.12"), (1, "1.0"), (99.94, "99.9"), (100, "100"), (1234.5, "1,234")],
)
def test_rates(number: float | None, told: str) -> None:
    assert rendering.rate(number) == told


@pytest.mark.parametrize(
    ("number", "told"), [(None, UNKNOWN), (0, "0 %"), (0.00001, "< 0.01 %"), (0.0001, "0.01 %"), (0.5, "50.00 %")]
)
def test_a_share_that_is_not_nothing_never_looks_like_nothing(number: float | None, told: str) -> None:
    assert rendering.share(number) == told


@pytest.mark.parametrize(
    ("number", "told"), [(None, UNKNOWN), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 30, "5.0 GiB")]
)
def test_sizes(number: int | None, told: str) -> None:
    assert rendering.size(number) == told


@pytest.mark.parametrize(
    ("length_ms", "told"),
    [
        (None, UNKNOWN),
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (9_999, "10 s"),
        (269_663, "4 min 29 s"),
        (60_000, "1 min"),
        (61_000, "1 min 1 s"),
        (86_400_000 * 3 + 3_600_000 * 4 + 1_000, "3 d 4 h"),
        (-61_000, "-1 min 1 s"),
    ],
)
def test_durations_have_two_units(length_ms: int | None, told: str) -> None:
    assert rendering.duration(length_ms) == told


def test_a_time_that_no_calendar_has_is_the_number() -> None:
    assert rendering.told_minute(1_500) == "1970-01-01 00:00"
    assert rendering.since(1_500, 62_500) == "1 min 1 s"
    assert rendering.since(1_500, 1_500 + 8 * 86_400_000) == "1970-01-01 00:00", "a record of a log of former years"
    assert rendering.told_minute(2**63 - 1) == "9,223,372,036,854,775,807 ms"


def test_a_long_text_is_cut() -> None:
    assert rendering.short("x" * 300) == "x" * 300
    assert rendering.short("x" * 301) == "x" * 299 + "…"


def test_a_template_that_lacks_a_value_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        rendering.rendered("message.html", base="", here="", now_ms=0, title="a")
