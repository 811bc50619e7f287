"""The page of the faults leaves nothing out silently."""

from __future__ import annotations

from tests.faults.chains import Case
from tests.faults.effects import Point
from tests.faults.page import page, table
from tests.faults.parts import PARTS

FOUND = [
    Case(part="windowed", fault="restart", point=Point("delta append late")),
    Case(part="windowed", fault="restart", point=Point("kafka commit"), wrong="late: 1 missing"),
    Case(part="windowed", fault="ledger restored", point=Point("kafka commit"), refused=True),
]


def test_each_case_is_counted_once() -> None:
    told = page(FOUND)
    assert "**2 of 3** cases are right" in told
    assert "| windowed | restart | 2 | 2 | 1 | 0 | 1 |" in told
    assert "| windowed | ledger restored | 1 | 1 | 0 | 1 | 0 |" in told
    assert "late: 1 missing" in told


def test_what_was_not_run_is_said() -> None:
    told = page(FOUND)
    expected = [f"Not run: {name}, {fault}." for name, part in PARTS.items() for fault in part.faults]
    said = [line.removeprefix("- ") for line in told.splitlines() if line.startswith("- Not run")]
    assert said == [
        one for one in expected if one not in ("Not run: windowed, restart.", "Not run: windowed, ledger restored.")
    ]


def test_the_terminal_shows_the_same_counts() -> None:
    assert [line.split()[-4:] for line in table(FOUND).splitlines()[1:]] == [["2", "1", "0", "1"], ["1", "0", "1", "0"]]
