"""``recount query`` as it is typed."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
import typer
from click.testing import Result
from tests.unit.serve.written_streams import WrittenStream, as_arrivals, recorded_ms
from typer.testing import CliRunner

from recount.declare.registry import declared
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.serve.answer import _roughly
from recount.serve.question import query

HOUR_S = 3_600
LONG = "a-long-name-" * 40


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three products, one of them with a name that a terminal would obey, one with a long name."""
    root = tmp_path_factory.mktemp("data")
    orders = [
        ("o1", 1, {"order_id": "o1", "product": "tea", "amount": "1.50"}),
        ("o2", HOUR_S, {"order_id": "o2", "product": "\x1b[31m[red]", "amount": "2"}),
        ("o3", HOUR_S, {"order_id": "o3", "product": LONG, "amount": "3"}),
    ]
    WrittenStream(declared().topologies["product-revenue"], root).write([as_arrivals("orders", *orders)])
    return root


@pytest.fixture(autouse=True)
def settings(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = dict.fromkeys(("checkpoints", "reports", "logs", "run", "jars"), str(tmp_path))
    here = Settings(profile="embedded", bootstrap_servers="nowhere:1", data=str(data), **places)
    for name, value in here.to_environment().items():
        monkeypatch.setenv(name, value)


def typed(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(query)
    return CliRunner().invoke(app, list(arguments))


def test_rows_are_shown_as_a_table_with_the_batch_that_they_are_from() -> None:
    ended = typed("product-revenue", "--key", "tea")
    assert ended.exit_code == 0, ended.exception
    lines = ended.output.splitlines()
    [row] = [line for line in lines if "tea" in line]
    assert "1970-01-01 01:00:00" in row and "1.50" in row
    assert lines[-3] == "rows: 1"
    assert lines[-2].startswith("as of batch 0/0, recorded 2023-11-14 22:13:20 UTC")
    assert lines[-1] == "never audited"


def test_a_long_key_is_whole_where_output_is_no_terminal() -> None:
    [row] = [line for line in typed("product-revenue").output.splitlines() if LONG in line]
    assert "3" in row.replace(LONG, "")


def test_what_a_terminal_would_obey_is_escaped() -> None:
    shown = typed("product-revenue").output
    assert "\x1b" not in shown
    assert r"'\x1b[31m[red]'" in shown


@pytest.mark.parametrize(
    ("age_ms", "shown"), [(999, "0 ms"), (59_999, "59 s"), (60_000, "1 min"), (7_199_999, "1 h"), (90_000_000, "1 d")]
)
def test_the_age_of_a_batch_is_told_in_its_largest_unit(age_ms: int, shown: str) -> None:
    assert _roughly(age_ms) == shown


def test_the_answer_can_be_had_as_json() -> None:
    said = json.loads(typed("product-revenue", "--key", "tea", "--json").output, parse_float=Decimal)
    assert (said["state"], said["as_of"]["batch"], said["total"]) == ("ready", 0, 1)
    assert said["rows"][0]["hourly_revenue"] == Decimal("1.50")


def test_that_nothing_is_known_yet_is_an_answer() -> None:
    ended = typed("product-revenue", "--at", str(recorded_ms(0) - 1))
    assert (ended.exit_code, ended.output) == (0, "not ready: product-revenue had not committed a batch by then\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["high-value-orders"], "one of high-value-orders, vip-orders"),
        (["archive-orders"], "a topology"),
        (["product-revenue", "--limit", "all"], "1 to 10000"),
        (["product-revenue", "--at", "yesterday"], "a time in ISO 8601"),
    ],
)
def test_a_question_that_means_nothing_is_an_error_that_says_what_does(arguments: list[str], expected: str) -> None:
    ended = typed(*arguments)
    assert isinstance(ended.exception, Terminal)
    assert expected in ended.exception.expected


def test_an_answer_needs_neither_spark_nor_kafka() -> None:
    heavy = "{'pyspark', 'airflow', 'confluent_kafka', 'great_expectations', 'fastapi'}"
    modules = "recount.serve.question, recount.serve.answer, recount.serve.answer"
    code = f"import sys, {modules}; print({heavy} & sys.modules.keys())"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "set()\n"
