"""docs/production.md: its figures are those of the pages that it names, which are those of the measurements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from bench.results import Results
from bench.table import tables
from tests.unit.docs.shown_commands import ROOT, commands_in, page, require_typable
from tests.unit.docs.test_links import headings

PAGE = page("production.md")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of the page, and the cell of another page that it is from."""

    what: str
    figure: str
    page: str
    heading: str
    row: str
    column: str


def figures() -> Iterator[Figure]:
    pattern = r"^\| (.+?) \| ([\d,.]+) \| \[[^]]*\]\((.+?)#(.+?)\): (.+), (.+?) \|$"
    names = ("what", "figure", "page", "heading", "row", "column")
    for found in re.findall(pattern, PAGE, re.MULTILINE):
        yield Figure(**dict(zip(names, found, strict=True)))


FIGURES = list(figures())


def cell(of: Figure) -> str:
    """What stands in the row and column that ``of`` names: a row begins with these cells, read as one text."""
    sections = re.split(r"^(?=#+ )", page(of.page), flags=re.MULTILINE)
    [section] = [text for text in sections if of.heading in headings(text.partition("\n")[0])]
    head, _, *rows = [
        [one.strip() for one in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    ]
    column = head.index(of.column)
    row_of = [row for row in rows if of.row in (row[0], " ".join(row[:2]), ", ".join(row[:2]))]
    assert len(row_of) == 1, f"{len(row_of)} rows {of.row}"
    return row_of[0][column]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: f"{figure.page} {figure.row} {figure.column}")
def test_each_figure_is_the_one_that_was_measured(figure: Figure) -> None:
    assert figure.figure == cell(figure), figure.what


def test_no_figure_of_the_tables_is_without_its_source() -> None:
    rows = re.findall(r"^\| (?!measured|---).*\|$", PAGE.partition("## Tuning")[2], re.MULTILINE)
    assert len(rows) == len(FIGURES) > 20


def test_the_page_of_the_benchmark_has_the_tables_of_its_results() -> None:
    performance = page("performance.md")
    results = Results.read(ROOT / "docs" / "performance" / "results.json")
    written = [table.markdown() for table in tables(results)]
    assert len(written) == 9
    assert [table for table in written if table not in performance] == []


@pytest.mark.parametrize("command", commands_in(PAGE))
def test_each_command_can_be_typed(command: str) -> None:
    require_typable(command)
