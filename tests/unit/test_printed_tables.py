"""A table that goes to no terminal has every name in one piece."""

from __future__ import annotations

import pytest
from rich.table import Table
from rich.text import Text

from recount.runtime.console import print_whole

TOPIC = "recount." + "a-long-name." * 20
WHY = " ".join(["reason"] * 100)


@pytest.fixture
def table() -> Table:
    made = Table("topic", "why", title="topics")
    made.add_row(TOPIC, WHY)
    made.add_row("short", "")
    return made


@pytest.mark.parametrize("columns", ["40", "160", ""])
def test_names_are_whole_where_output_is_no_terminal(
    table: Table, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    print_whole(table)
    lines = capsys.readouterr().out.splitlines()
    assert [TOPIC in line and WHY in line for line in lines].count(True) == 1
    assert len(lines) == 7, "the title, three lines of the frame, the head, two rows"


def test_on_a_terminal_a_long_name_goes_on_in_the_next_line(
    table: Table, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_whole(table)
    shown = Text.from_ansi(capsys.readouterr().out).plain
    assert max(map(len, shown.splitlines())) <= 60
    assert "…" not in shown


def test_each_part_has_its_own_width_and_a_text_has_no_markup(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    table.add_row("[red] by", "[/nobody]")
    print_whole("[red] topics:", table, "")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[red] topics:"
    assert any(TOPIC in line for line in lines)
    assert any("[red] by" in line and "[/nobody]" in line for line in lines), "or it would raise"
    assert lines[-1].strip() == ""
