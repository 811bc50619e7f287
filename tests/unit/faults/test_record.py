"""A run of the faults that is ended is gone on with."""

from __future__ import annotations

from pathlib import Path

from tests.faults.chains import Case
from tests.faults.effects import Point
from tests.faults.record import Record

FOUND = [
    Case(part="windowed", fault="restart", point=Point("delta append late", 2), took_s=1.5),
    Case(part="windowed", fault="restart", point=Point("kafka commit"), wrong="late: 1 missing"),
]


def test_what_was_found_is_kept_fault_by_fault(tmp_path: Path) -> None:
    record = Record(tmp_path / "faults.jsonl")
    assert (record.cases(), record.done("windowed")) == ([], set())
    record.add("windowed", "restart", FOUND)
    record.add("archive", "zombie", [])
    again = Record(tmp_path / "faults.jsonl")
    assert again.cases() == FOUND
    assert (again.done("windowed"), again.done("archive"), again.done("audit")) == ({"restart"}, {"zombie"}, set())
    assert again.told().endswith("(2 cases).")


def test_without_a_file_nothing_is_kept() -> None:
    record = Record()
    record.add("windowed", "restart", FOUND)
    assert (record.cases(), record.done("windowed")) == ([], set())
