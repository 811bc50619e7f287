"""The wheel in an empty folder: each extra alone, then a project from `recount init` to an audit that is a match.

``make test-dist`` runs it, with the wheel that ``make dist`` has built. Everything is the real thing: packages come
from the index, jars from Maven; broker, Spark and Airflow run.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.dist.installed import done, produce, run, wheel
from tests.eventually import awaited

from recount.profile.dag_runs import AirflowApi, DagRuns
from recount.profile.home import Home, Running

pytestmark = pytest.mark.timeout(3_000)

PYTHONS = os.environ.get("PYTHONS", sys.executable).split()
STREAM = "revenue-by-region"
MINUTE_MS = 60_000

# what an installation without extras can import: everything but the parts that need one
IMPORTS = """
import importlib, pkgutil, recount
parts = ("recount.airflow", "recount.pages", "recount.profile", "recount.testing", "recount.runtime.installation")
served = ("http_answers", "asked_paths", "bearer", "listening", "refusals")
count = 0
for found in pkgutil.walk_packages(recount.__path__, "recount.", onerror=lambda name: None):
    name = found.name
    if not name.startswith(parts) and name.rpartition(".")[2] not in served and not name.endswith("__main__"):
        importlib.import_module(name)
        count += 1
print(count)
"""


@pytest.fixture(scope="module", params=PYTHONS, ids=lambda python: Path(python).name)
def bare(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and no extra; returns its folder of programs."""
    folder = tmp_path_factory.mktemp("bare")
    done(request.param, "-m", "venv", "venv", folder=folder)
    done(folder / "venv" / "bin" / "pip", "install", "--quiet", wheel(), "pytest", folder=folder)
    return folder / "venv" / "bin"


def test_the_wheel_brings_one_package_typed_and_with_all_that_it_needs(bare: Path, tmp_path: Path) -> None:
    files = done(bare / "pip", "show", "--files", "recount", folder=tmp_path).split()
    tops = {file.split("/")[0] for file in files[files.index("Files:") + 1 :]}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"recount", ".."}  # its program lies elsewhere
    assert {"recount/py.typed", "recount/shipped/pom.xml", "recount/shipped/spark_jobs/stream.py"} <= set(files)


def test_every_part_that_is_of_no_extra_can_be_imported_without_any(bare: Path, tmp_path: Path) -> None:
    assert int(done(bare / "python", "-W", "error::SyntaxWarning", "-c", IMPORTS, folder=tmp_path)) > 400


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("local", ["recount", "up"]),
        ("airflow", ["python", "-c", "import recount.airflow.dag_factory"]),
        ("audit", ["python", "-c", "from recount.audit.expectations.validation import great_expectations as g; g()"]),
        ("serve", ["recount", "serve"]),
    ],
)
def test_a_part_without_its_extra_names_it(bare: Path, tmp_path: Path, extra: str, command: list[str]) -> None:
    ended = run(bare / command[0], *command[1:], folder=tmp_path)
    assert ended.returncode != 0
    assert f"pip install 'recount[{extra}]'" in ended.stderr


def test_the_jars_are_named_for_spark_submit(bare: Path, tmp_path: Path) -> None:
    named = done(bare / "recount", "jars", "--packages", folder=tmp_path).strip().split(",")
    assert len(named) == 9 and all(one.count(":") == 2 and "$" not in one for one in named)


def test_the_tests_of_a_new_project_s_stream_need_no_extra(bare: Path, tmp_path: Path) -> None:
    done(bare / "recount", "init", "my-project", folder=tmp_path)
    told = done(bare / "python", "-m", "pytest", "-q", "tests/test_orders.py", folder=tmp_path / "my-project")
    assert "2 passed" in told


def test_a_folder_that_is_there_is_not_written_into(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "my-project").mkdir()
    ended = run(bare / "recount", "init", "my-project", folder=tmp_path)
    assert ended.returncode == 1 and "my-project" in ended.stderr
    assert not list((tmp_path / "my-project").iterdir())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A new project with an environment of its own, whose profile is stopped in the end."""
    folder = tmp_path_factory.mktemp("empty")
    done(PYTHONS[0], "-m", "venv", "venv", folder=folder)
    done(folder / "venv" / "bin" / "pip", "install", "--quiet", wheel(), folder=folder)
    done(folder / "venv" / "bin" / "recount", "init", "my-project", folder=folder)
    made = folder / "my-project"
    assert [one.name for one in (made / "wheels").glob("*.whl")] == [wheel().name]
    yield made
    if (made / ".venv" / "bin" / "recount").exists():
        run(made / ".venv" / "bin" / "recount", "down", "--delete", folder=made)


def test_make_test_of_a_new_project_passes(project: Path) -> None:
    assert "3 passed" in done("make", "test", f"PYTHON={PYTHONS[0]}", folder=project)


@pytest.fixture(scope="module")
def up(project: Path) -> Running:
    """The project's broker, Spark and Airflow."""
    done("make", "up", folder=project)
    done("make", "topics", folder=project)
    running = Running.read(Home(path=project / ".recount"))
    assert running is not None
    return running


def test_the_project_s_own_stream_runs_in_airflow_and_its_audit_is_a_match(project: Path, up: Running) -> None:
    assert up.airflow_url is not None
    home = Home(path=project / ".recount")
    api = AirflowApi(up.airflow_url, home.airflow_passwords)
    runs = DagRuns(api)
    runs.unpause(f"stream__{STREAM}")
    now_ms = time.time_ns() // 1_000_000
    start_ms = now_ms - now_ms % (5 * MINUTE_MS) - 60 * MINUTE_MS
    produce(up.bootstrap_servers, [(start_ms + number * 1_000, number) for number in range(1_000)])
    command = project / ".venv" / "bin" / "recount"

    def answered() -> list[dict[str, Any]] | None:
        told = run(command, "query", STREAM, "--json", folder=project)
        rows: list[dict[str, Any]] = json.loads(told.stdout)["rows"] if told.returncode == 0 else []
        return rows if len(rows) >= 6 else None

    awaited("answers of the stream", answered, 600, 2)
    audit = runs.wait(f"audit__{STREAM}", runs.trigger(f"audit__{STREAM}"), timeout_s=1_500)
    assert audit.state == "success", audit.tasks
    certificates = sorted((home.reports / "certificates" / STREAM).glob("*.json"))
    assert json.loads(certificates[-1].read_text())["outcome"] == "match"
    # the suite of the project itself was put to the table
    [outcome] = (home.reports / "expectations" / STREAM).glob("*.json")
    assert json.loads(outcome.read_text())["exit_code"] == 0
    assert "revenue" in outcome.read_text()
    [driver] = [json.loads(file.read_text()) for file in (home.run / "drivers").glob(f"{STREAM}.json")]
    words = Path(f"/proc/{driver['pid']}/cmdline").read_bytes().decode().split("\0")
    assert "-Xmx1g" in words  # as the project's RunSettings say
    assert str(project / "spark_jobs" / "stream.py") in words
