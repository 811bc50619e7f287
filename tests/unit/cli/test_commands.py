"""``make conformance`` and ``recount describe`` as they are typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from click.testing import Result
from tests.conformance.__main__ import conformance
from typer.testing import CliRunner

from recount.lifecycle.declaration_commands import describe
from recount.runtime.errors import RecountError

CASE = {
    "id": "Test.counts",
    "source": "apache/kafka",
    "operator": "tumbling",
    "config": {"size_ms": 10, "grace_ms": 0, "aggregate": "count"},
    "input": [{"topic": "t", "key": "k", "value": "v", "ts": 1}],
    "expected_final": [{"key": "k", "window_start": 0, "window_end": 10, "value": 1, "timestamp": 1}],
}


def typed(command: Callable[..., None], *arguments: str) -> Result:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def cases(tmp_path: Path) -> Callable[..., str]:
    def write(*documents: object) -> str:
        (tmp_path / "cases.json").write_text(json.dumps(documents))
        return str(tmp_path)

    return write


def test_cases_that_pass_are_only_counted(cases: Callable[..., str]) -> None:
    shown = typed(conformance, cases(CASE))
    assert (shown.exit_code, shown.output) == (0, "1 passed, 0 failed, 0 not expressible\n")


def test_each_case_that_differs_has_one_line_and_makes_the_exit_code_1(cases: Callable[..., str]) -> None:
    shown = typed(conformance, cases(CASE, {**CASE, "id": "Test.none", "expected_final": []}))
    assert shown.exit_code == 1
    assert shown.output.splitlines() == [
        "Test.none: failed: final: expected nothing, actual ('k', 0, 10, 1, 1)",
        "1 passed, 1 failed, 0 not expressible",
    ]


def test_one_case_can_be_run_alone(cases: Callable[..., str]) -> None:
    folder = cases(CASE, {**CASE, "id": "Test.none", "expected_final": []})
    assert typed(conformance, folder, "--case", "Test.counts").exit_code == 0


def test_the_engine_must_be_one_that_there_is(cases: Callable[..., str]) -> None:
    assert typed(conformance, cases(CASE), "--engine", "teleport").exit_code == 2


def test_streams_and_archives_are_described_and_drawn() -> None:
    shown = typed(describe).output
    assert "stream revenue-by-region" in shown
    assert "stream archive-orders\n  every record of orders as it came, to the table archive/orders" in shown
    assert "is a DOUBLE" not in shown, "no stream of the shop makes a DOUBLE of a decimal"
    assert typed(describe, "archive-orders").output.startswith("stream archive-orders\n")
    assert typed(describe, "revenue-by-region", "--mermaid").output.startswith("flowchart TD")


def test_a_stream_that_is_not_declared_is_an_error_that_names_those_that_are() -> None:
    shown = typed(describe, "nowhere")
    assert isinstance(shown.exception, RecountError)
    assert "revenue-by-region" in shown.exception.expected


def test_it_says_when_kafka_deletes_results_and_is_silent_where_they_stay() -> None:
    shown = typed(describe, "revenue-by-region").output
    assert "  Kafka deletes results in windowed-revenue 7 d after their event time" in shown
    assert "Kafka deletes" not in typed(describe, "customer-profile").output


MONEY = """
from decimal import Decimal

from recount.declare.expressions import col
from recount.declare.schema import DOUBLE, LONG, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream

fields = RecordSchema.of(price=decimal(15, 2), pieces=LONG, rate=DOUBLE)
prices = stream(Topic(name="prices", key="id", value=fields))
taxed = Topology(name="taxed", sinks=[prices.with_fields(taxed={}).to(Topic(name="taxed", key="id"))])
"""
RATE = 'Decimal("1.0725")'


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ('col("price") * 1.0725', "(price * 1.0725)"),
        ('(col("pieces") * col("price") + col("rate")) * 2', "((pieces * price) + rate)"),
        (f'col("price") * {RATE}', None),
        ('col("pieces") * col("rate") * 1.5', None),
        ('col("price") * 1.0', None),
        ('col("price") * 1.0 * 1.0725', None),
        ('1.0 * col("rate") * col("price")', None),
    ],
)
def test_it_names_an_expression_in_which_a_decimal_becomes_a_double_unless_that_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expression: str, named: str | None
) -> None:
    module = f"money_{abs(hash(expression))}"
    (tmp_path / f"{module}.py").write_text(MONEY.format(expression))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RECOUNT_TOPOLOGIES", module)
    warned = [line for line in typed(describe, "taxed").output.splitlines() if "is a DOUBLE" in line]
    assert [line.split(" is a DOUBLE")[0].strip() for line in warned] == ([] if named is None else [named])
    assert all(RATE in line for line in warned)


def test_modules_that_declare_no_stream_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nothing_yet.py").write_text("def streams():\n    return []\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RECOUNT_TOPOLOGIES", "nothing_yet")
    shown = typed(describe)
    assert isinstance(shown.exception, RecountError)
    assert shown.exception.given == "nothing_yet"
    assert "top level" in shown.exception.remedy
