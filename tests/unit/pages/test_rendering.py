"""How numbers, shares, sizes and times are written on the pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from jinja2 import UndefinedError

from recount.pages import rendering
from recount.pages.rendering import UNKNOWN

WRITTEN: dict[Callable[[Any], str], dict[float | None, str]] = {
    rendering.rate: {None: UNKNOWN, 0: "0", 0.123: "0.12", 1: "1.0", 99.94: "99.9", 100: "100", 1234.5: "1,234"},
    rendering.share: {None: UNKNOWN, 0: "0 %", 0.00001: "< 0.01 %", 0.0001: "0.01 %", 0.5: "50.00 %"},
    rendering.size: {None: UNKNOWN, 1023: "1,023 B", 1024: "1.0 KiB", 5 << 30: "5.0 GiB"},
    rendering.duration: {
        None: UNKNOWN,
        0: "0 ms",
        999: "999 ms",
        1_000: "1 s",
        9_999: "10 s",
        60_000: "1 min",
        61_000: "1 min 1 s",
    }
    | {
        61_000: "1 min 1 s",
        269_663: "4 min 29 s",
        86_400_000 * 3 + 3_600_000 * 4 + 1_000: "3 d 4 h",
        -61_000: "-1 min 1 s",
    },
}


@pytest.mark.parametrize("write", WRITTEN)
def test_numbers_shares_sizes_and_times_are_written_so(write: Callable[[Any], str]) -> None:
    assert {number: write(number) for number in WRITTEN[write]} == WRITTEN[write]


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
