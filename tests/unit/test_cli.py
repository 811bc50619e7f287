"""The command line attaches every room by name and imports none of them before it is called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import pytest
import typer

from recount import cli
from recount.runtime.errors import Terminal, Transient


def refuse() -> None:
    raise Terminal("no such stream", given="revenu", remedy="recount describe lists them")


def wait() -> None:
    raise Transient("the broker restarts")


def greet(name: str, loud: bool = False) -> None:
    print(name.upper() if loud else name)


def repeat(times: int = 1, word: Annotated[list[str] | None, typer.Option()] = None, loud: bool = False) -> None:
    said = "".join(word or []) * times
    print(said.upper() if loud else said)


def test_help_imports_no_room() -> None:
    code = (
        "import sys\n"
        "from recount.cli import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'pyspark', 'airflow', 'polars', 'confluent_kafka', 'psutil'}\n"
        "print('LOADED', sorted(heavy & sys.modules.keys()))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "LOADED []"


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.app(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"recount {version('recount')}\n")


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
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **given}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)


def test_arguments_and_options_reach_the_command() -> None:
    assert called("greet", "orders", "--loud").stdout == "ORDERS\n"


def test_an_option_that_takes_one_value_is_not_given_twice() -> None:
    ended = called("repeat", "--times", "2", "--times", "3")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--times is given 2 times; it takes one value" in ended.stderr
    assert called("repeat", "--times", "2", "--word", "a", "--word", "b", "--loud", "--loud").stdout == "ABAB\n"


def test_an_error_a_human_must_act_on_ends_with_one_and_its_remedy() -> None:
    ended = called("refuse")
    assert ended.returncode == 1
    assert "remedy: recount describe lists them" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_error_worth_retrying_ends_with_the_code_for_that() -> None:
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
