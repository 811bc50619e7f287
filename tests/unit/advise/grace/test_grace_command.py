"""``recount grace`` as it is typed, and as its page of the documentation shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from click.testing import Result
from tests.unit.advise.grace.planted import misses_of, planted, with_misses
from typer.testing import CliRunner

from recount.advise.grace_command import grace
from recount.profile.home import Project
from recount.runtime.errors import RecountError

NAME = "revenue-by-region"
TYPED = ("--rate", "orders=20", "--keys", "region=100")


def typed(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(grace)
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def hundred(tmp_path: Path) -> str:
    stream = planted(tmp_path)
    stream.audit(3)
    with_misses(stream, "night-3", misses_of(stream))
    return str(tmp_path)


def test_the_example_in_the_documentation_is_what_is_printed(hundred: str, project: Project) -> None:
    page = (project.root / "docs" / "grace.md").read_text()
    [example] = re.findall(r"```\n(stream revenue-by-region\n.*?)```", page, re.DOTALL)
    shown = typed(NAME, "--data", hundred, *TYPED).output
    assert [line.rstrip() for line in shown.splitlines()] == example.splitlines()


def test_a_stream_that_has_not_run_is_an_answer(tmp_path: Path) -> None:
    shown = typed(NAME, "--data", str(tmp_path))
    assert shown.exit_code == 0
    assert "not ready: revenue-by-region has not committed a batch yet" in shown.output


def test_operators_without_a_grace_are_named(tmp_path: Path) -> None:
    planted(tmp_path)
    # deduplications have a horizon
    name = "orders-deduplicated"
    (tmp_path / "streams" / NAME).rename(tmp_path / "streams" / name)
    shown = typed(name, "--data", str(tmp_path)).output
    assert "it has no grace that could be longer" in shown
    assert "no operator judges records by a grace" in shown


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("nowhere",), NAME),
        (("archive-orders",), NAME),
        ((NAME, "--rate", "orders=x"), "a number above 0"),
        ((NAME, "--trigger", "0 s"), "a duration above 0"),
    ],
)
def test_bad_input_is_named_with_what_was_expected_and_what_to_do(
    arguments: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    refused = typed(*arguments, "--data", str(tmp_path)).exception
    assert isinstance(refused, RecountError)
    assert expected in refused.expected
    assert refused.remedy
