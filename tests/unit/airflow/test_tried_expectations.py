"""The task ``expectations`` says what the audit's application found, and looks itself when it is tried again."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from recount.airflow import audits
from recount.airflow.audits import ExpectationsOperator
from recount.audit.certificate.certificate_files import EXIT_DISAGREED, EXIT_FAILED, outcome_of
from recount.runtime.settings import Settings


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folders = dict.fromkeys(("data", "checkpoints", "reports", "logs", "run", "jars"), str(tmp_path))
    made = Settings(profile="embedded", bootstrap_servers="127.0.0.1:1", **folders)
    for name, value in made.to_environment().items():
        monkeypatch.setenv(name, value)
    return made.reports


def say(reports: str, exit_code: int) -> None:
    path = outcome_of(reports, "clicks", "a1")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"exit_code": exit_code, "lines": ["clicks raw_log: told"]}))


def execute(audit: str = "a1", try_number: int = 1) -> None:
    context: Any = {"ti": SimpleNamespace(try_number=try_number)}
    ExpectationsOperator(task_id="expectations", stream="clicks", audit=audit).execute(context)


def test_expectations_that_hold_are_green_and_logged(reports: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(reports, 0)
    execute()
    assert "clicks raw_log: told" in capsys.readouterr().out


@pytest.mark.parametrize(("exit_code", "told"), [(EXIT_FAILED, "an expectation failed"), (EXIT_DISAGREED, "disagree")])
def test_expectations_that_fail_are_red(reports: str, exit_code: int, told: str) -> None:
    say(reports, exit_code)
    with pytest.raises(AirflowFailException, match=told):
        execute()


@pytest.mark.parametrize(("is_told", "try_number"), [(True, 2), (False, 1)])
def test_a_later_try_looks_again_and_so_does_one_without_an_outcome(
    reports: str, is_told: bool, try_number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_told:
        say(reports, 0)
    monkeypatch.setattr(audits.sys, "executable", "false")
    with pytest.raises(AirflowFailException, match="could not be tried: exit code 1"):
        execute(try_number=try_number)


def test_a_stream_that_was_not_judged_is_skipped() -> None:
    with pytest.raises(AirflowSkipException):
        execute(audit="None")
