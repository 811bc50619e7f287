"""``recount estimate`` as it is typed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import Result
from tests.unit.advise.estimates.measured_streams import write
from tests.unit.advise.estimates.steady_flow import clicks, topology_of, views
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.topology_engine import TopologyEngine
from typer.testing import CliRunner

from recount.advise.estimate_command import estimate
from recount.declare.registry import declared
from recount.declare.topology import stream
from recount.runtime.errors import RecountError

NAME = "revenue-by-region"
ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())


def typed(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(estimate)
    return CliRunner().invoke(app, list(arguments))


def printed(*arguments: str) -> dict[str, Any]:
    shown = typed(*arguments, "--json")
    assert shown.exit_code == 0, shown.exception
    found: dict[str, Any] = json.loads(shown.output)
    return found


@pytest.fixture(autouse=True)
def _no_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RECOUNT_PROFILE", raising=False)


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """Where the stream has run for a batch: three regions in one window."""
    values = [b'{"order_id": "1", "amount": 5, "region": "%s"}' % region for region in (b"EU", b"US", b"EU", b"JP")]
    log = [LogRecord(timestamp_ms=1_000, value=value) for value in values]
    topology = declared().topology(NAME)
    [source] = topology.sources
    engine = TopologyEngine(topology, {source.topic.name: 1})
    write(topology, tmp_path, [engine.batch({source.topic.name: log})])
    return tmp_path


def test_what_a_stream_holds_stands_beside_it_also_where_it_has_another_name(ran: Path) -> None:
    assert "3 rows" in typed(NAME, "--data", str(ran)).output
    (ran / "streams" / NAME).rename(ran / "streams" / "twin")
    found = printed(NAME, "--data", str(ran), "--stream", "twin")
    held = [one["measured"]["rows"] for operator in found["operators"] for one in operator["states"]]
    assert (found["stream"], found["measured"]["table"]["rows"], held) == (NAME, 8, [3, 3, 2])


def test_figures_for_machines_are_those_of_the_page() -> None:
    found = printed(NAME, "--keys", "region=7", "--rate", "500", "--trigger", "2 s", "--late-by", "1 min")
    assert found["stream"] == NAME
    assert found["assumed"]["keys_by_name"] == {"region": 7}
    assert (found["batch"]["records"], found["batch"]["per_s"]) == (1_000, 0.5)
    assert (found["measured"], found["status"], found["restart"]["seconds"]) == (None, None, None)


def test_the_example_in_the_documentation_is_what_is_printed() -> None:
    page = (ROOT / "docs" / "estimates.md").read_text()
    [example] = re.findall(r"```\n(stream revenue-by-region\n.*?)```", page, re.DOTALL)
    shown = typed(NAME, "--keys", "region=7").output
    printed_lines = [line.rstrip() for line in shown.partition("\na batch ")[0].splitlines()]
    assert printed_lines == example.splitlines()


JOINED = topology_of(stream(clicks).join(stream(views), before="5 s", after="5 s", grace="0 s"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("nowhere", NAME),
        (f"{NAME} --rate orders=x", "a number above 0"),
        (f"{NAME} --rate 0", "a number above 0"),
        (f"{NAME} --rate inf", "a number above 0"),
        (f"{NAME} --rate visits=5", "one of orders"),
        (f"{NAME} --keys continent=5", "one of order_id, region"),
        (f"{NAME} --keys region=", "or unique"),
        (f"{NAME} --record-bytes 0", "bytes above 0"),
        (f"{NAME} --trigger 0s", "a duration above 0"),
        (f"{NAME} --data none", "a stream that runs or has run"),
        (f"{NAME} --stream twin", "a stream that runs or has run"),
        (f"{NAME} --benchmark none.json", "make bench"),
    ],
)
def test_bad_input_is_named_with_what_was_expected_and_what_to_do(arguments: str, expected: str) -> None:
    refused = typed(*arguments.split()).exception
    assert isinstance(refused, RecountError)
    assert expected in refused.expected
    assert refused.remedy
