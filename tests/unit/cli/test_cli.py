"""The command line attaches each command by name and imports it when it is called; tables; ``recount describe``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import pytest
import typer
from click.testing import Result
from rich.table import Table
from typer.testing import CliRunner

from recount import cli
from recount.lifecycle.declaration_commands import describe
from recount.runtime.console import print_whole
from recount.runtime.errors import RecountError, Terminal, Transient


def refuse() -> None:
    raise Terminal("no such stream", given="revenu", remedy="recount describe lists them")


def wait() -> None:
    raise Transient("the broker restarts")


def repeat(
    end: str, times: int = 1, word: Annotated[list[str] | None, typer.Option()] = None, loud: bool = False
) -> None:
    said = "".join(word or []) * times + end
    print(said.upper() if loud else said)


def test_version_and_help_import_no_room() -> None:
    code = (
        "import sys\nfrom recount.cli import app\n"
        "for asked in '--version', '--help':\n"
        "    try:\n        app([asked])\n    except SystemExit:\n        pass\n"
        "heavy = {'pyspark', 'airflow', 'polars', 'confluent_kafka', 'psutil'}\n"
        "print('LOADED', sorted(heavy & sys.modules.keys()))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert (shown.splitlines()[0], shown.splitlines()[-1]) == (f"recount {version('recount')}", "LOADED []")


@pytest.mark.parametrize("name", list(cli._COMMANDS))
def test_every_command_of_the_table_answers_to_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.app([name, "--help"])
    assert ended.value.code == 0
    assert f"Usage: recount {name}" in capsys.readouterr().out


def show_settings() -> None:
    print(*(os.environ[key] for key in ("RECOUNT_TOPOLOGIES", "RECOUNT_NOTIFIERS", "RECOUNT_PREFIX")))


def called(target: str, *arguments: str, **given: str) -> subprocess.CompletedProcess[str]:
    """A command of this test module, called through the command line."""
    code = f"from recount import cli; cli._attach('try', '{__name__}:{target}', ''); cli.app({['try', *arguments]!r})"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), **given}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)


def test_arguments_and_options_reach_the_command_and_one_that_takes_one_value_is_not_given_twice() -> None:
    ended = called("repeat", "x", "--times", "2", "--times", "3")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--times is given 2 times; it takes one value" in ended.stderr
    given = ("repeat", "x", "--times", "2", "--word", "a", "--word", "b", "--loud", "--loud")
    assert called(*given).stdout == "ABABX\n"


def test_an_error_a_human_must_act_on_ends_with_one_and_its_remedy_and_one_worth_retrying_with_75() -> None:
    ended = called("refuse")
    assert ended.returncode == 1
    assert "remedy: recount describe lists them" in ended.stderr and "Traceback" not in ended.stderr
    assert called("wait").returncode == 75


def test_a_variable_of_the_environment_goes_before_that_of_the_running_profile(tmp_path: Path) -> None:
    settings = {"RECOUNT_TOPOLOGIES": "topologies", "RECOUNT_NOTIFIERS": "pagers", "RECOUNT_PREFIX": "recount"}
    running = {"bootstrap_servers": "nowhere:1", "spark_master": "local[*]", "spark_url": None, "airflow_url": None}
    (tmp_path / "profile.json").write_text(json.dumps({**running, "settings": settings}))
    given = {"RECOUNT_HOME": str(tmp_path), "RECOUNT_TOPOLOGIES": "mine", "RECOUNT_NOTIFIERS": ""}
    assert called("show_settings", **given).stdout == "mine pagers recount\n"


def test_a_misspelt_module_of_topologies_is_no_traceback() -> None:
    given = {"RECOUNT_HOME": "nowhere", "RECOUNT_TOPOLOGIES": "topologies, topologees"}
    environment = {**os.environ, **given}
    code = "from recount.cli import app; app(['describe'])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert ended.returncode == 1
    assert "given: 'topologees'" in ended.stderr and "PYTHONPATH" in ended.stderr
    assert "Traceback" not in ended.stderr


TOPIC, WHY = "recount." + "a-long-name." * 20, " ".join(["reason"] * 100)


@pytest.fixture
def table() -> Table:
    made = Table("topic", "why", title="topics")
    made.add_row(TOPIC, WHY)
    made.add_row("[red] short", "[/nobody]")
    return made


@pytest.mark.parametrize("columns", ["40", "160", ""])
def test_a_table_that_goes_to_no_terminal_has_every_name_in_one_piece_and_no_markup(
    table: Table, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    print_whole("[red] topics:", table, "")
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[-1].strip()) == ("[red] topics:", "")
    assert [TOPIC in line and WHY in line for line in lines].count(True) == 1
    assert any("[red] short" in line and "[/nobody]" in line for line in lines), "or it would raise"
    assert len(lines) == 9, "two texts, the title, three lines of the frame, the head, two rows"


def typed(command: Callable[..., None], *arguments: str) -> Result:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(arguments))


def test_streams_and_archives_are_described_and_drawn_and_a_name_that_is_not_declared_is_an_error() -> None:
    shown = typed(describe).output
    assert "stream revenue-by-region" in shown
    assert "stream archive-orders\n  every record of orders as it came, to the table archive/orders" in shown
    assert "is a DOUBLE" not in shown, "no stream of the shop makes a DOUBLE of a decimal"
    assert "  Kafka deletes results in windowed-revenue 7 d after their event time" in shown
    assert "Kafka deletes" not in typed(describe, "customer-profile").output
    assert typed(describe, "archive-orders").output.startswith("stream archive-orders\n")
    assert typed(describe, "revenue-by-region", "--mermaid").output.startswith("flowchart TD")
    unknown = typed(describe, "nowhere").exception
    assert isinstance(unknown, RecountError) and "revenue-by-region" in unknown.expected


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
