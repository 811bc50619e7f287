"""A task ends as its job does: what is final fails at once, in one line; what may pass is tried again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recount.airflow.submission import Submission
from recount.runtime.console import final_error_in
from recount.runtime.errors import Terminal, Transient
from recount.runtime.settings import Settings

NO_RETRY = "no retry can help"
JOB = """
import sys
from recount.runtime.errors import Terminal, Transient
from recount.runtime.settings import Settings
from recount.runtime.console import run_job
from recount.runtime.log_lines import write_log

def audit() -> None:
    write_log("{log}")
    raise {error}

run_job("audit", audit)
"""
SAID = "recount audit: the declaration has changed; remedy: recount reset orders"
TERMINAL = "Terminal('the declaration has changed', remedy='recount reset orders')"
SPARK_SUBMIT = """#!{python}
# as spark-submit in deploy mode client: it ends with the exit code of its Python
import subprocess, sys
[job] = [word for word in sys.argv if word.endswith("job.py")]
sys.exit(subprocess.call([sys.executable, job]))
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "delta.jar").touch()
    folders = dict.fromkeys(("data", "checkpoints", "reports", "logs", "run", "jars"), str(tmp_path))
    return Settings(profile="embedded", bootstrap_servers="127.0.0.1:1", **folders)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of a job that a ``spark-submit`` of this test runs."""
    binary = tmp_path / "bin" / "spark-submit"
    binary.parent.mkdir()
    binary.write_text(SPARK_SUBMIT.format(python=sys.executable))
    binary.chmod(0o700)
    monkeypatch.setenv("PATH", str(binary.parent), prepend=":")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    return tmp_path / "job.py"


def ended(job: Path, settings: Settings, error: str, log: str = "text") -> str | None:
    job.write_text(JOB.format(error=error, log=log))
    return Submission(application=job, arguments=[], name="recount audit orders", settings=settings).run()


@pytest.mark.parametrize("log", ["text", "json"])
def test_a_final_error_of_a_job_is_raised_in_its_own_line(job: Path, settings: Settings, log: str) -> None:
    with pytest.raises(Terminal) as raised:
        ended(job, settings, TERMINAL, log)
    assert str(raised.value) == SAID


def test_an_error_that_may_pass_is_raised_as_such(job: Path, settings: Settings) -> None:
    with pytest.raises(Transient, match="recount audit: the brokers are away"):
        ended(job, settings, "Transient('the brokers are away')")


def test_an_error_that_nobody_expected_may_pass(job: Path, settings: Settings) -> None:
    assert "Error code is: 70" in (ended(job, settings, "ZeroDivisionError") or "")


def run(job: Path, source: str) -> subprocess.CompletedProcess[str]:
    job.write_text(source)
    return subprocess.run([sys.executable, job], capture_output=True, text=True, timeout=60, check=False)


def test_a_job_says_a_final_error_in_one_line_without_a_trace(job: Path) -> None:
    found = run(job, JOB.format(error=TERMINAL, log="text"))
    assert (found.returncode, found.stdout, found.stderr) == (1, "", f"{SAID}\n")


def test_the_job_of_a_stream_that_cannot_start_says_in_one_line_that_no_retry_can_help() -> None:
    environment = {name: said for name, said in os.environ.items() if not name.startswith("RECOUNT_")}
    job = [sys.executable, "spark_jobs/stream.py", "--stream", "orders"]
    found = subprocess.run(job, env=environment, capture_output=True, text=True, timeout=300, check=False)
    [said] = found.stderr.splitlines()
    assert (found.returncode, found.stdout) == (1, "")
    assert (final_error_in(said) or "").startswith("invalid settings; given: 'RECOUNT_PROFILE is missing")


def test_a_job_that_decides_by_itself_what_is_final_ends_so(job: Path) -> None:
    """Topics that may be created soon are an error of the kind Terminal, and a stream is launched again for them."""
    decided = JOB.replace('run_job("audit", audit)', 'run_job("stream", audit, lambda error: error.what != "topics")')
    ends = ("topics", 75, "recount stream: topics"), ("sums", 1, f"recount stream: {NO_RETRY}: sums")
    for error, code, said in ends:
        found = run(job, decided.format(error=f"Terminal({error!r})", log="text"))
        assert (found.returncode, found.stderr) == (code, f"{said}\n")


def test_a_job_shows_where_an_error_came_from_that_nobody_expected(job: Path) -> None:
    found = run(job, JOB.format(error="ZeroDivisionError", log="text"))
    assert found.returncode == 70
    assert "Traceback" in found.stderr and "ZeroDivisionError" in found.stderr
