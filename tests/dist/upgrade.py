"""A project of an earlier release goes on with today's: tables, checkpoint, certificates, backfills, Airflow's data.

``make test-upgrade`` runs it: ``UPGRADE_FROM`` is the commit of the earlier release, ``make dist`` has built today's.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from tests.dist.installed import done, produce, run, wheel
from tests.eventually import awaited

from recount.profile.dag_runs import AirflowApi, DagRuns
from recount.profile.home import Home, Running

pytestmark = pytest.mark.timeout(3_000)

COMMIT = os.environ["UPGRADE_FROM"]
ROOT = Path(__file__).parents[2]
STREAM = "revenue-by-region"
WINDOWED = "orders-by-window"
WINDOWED_MODULE = """\
from my_project.topologies.orders import orders
from recount.core.aggregates import count
from recount.core.expressions import coalesce, col
from recount.core.topics import Topic
from recount.core.topology import Topology, stream
from recount.core.windows import session, sliding

_orders = stream(orders).select_key(region=coalesce(col("region"), "UNKNOWN"))
_kinds = {"sliding": sliding("30 s", grace="5 s"), "session": session("1 min", grace="5 s")}

orders_by_window = Topology(
    name="orders-by-window",
    sinks=[
        *(
            _orders.windowed_by(windows)
            .aggregate(orders=count())
            .emit_each_batch()
            .to(Topic(name=f"{kind}-orders", key="region"))
            for kind, windows in _kinds.items()
        ),
        _orders.aggregate(orders=count()).to(Topic(name="all-orders", key="region", cleanup_policy="compact")),
    ],
)
"""
"""A stream of another kind: its state, and what its audits keep, have other forms."""
_OWN = ("my_project", "dags", "spark_jobs", "tests")
ORDERS, AMOUNT = 1_000, Decimal("1.50")
MINUTE_MS = 60_000


class Installed:
    """A project made by the earlier release, with an environment of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = Home(path=folder / ".recount")
        self.command = folder / ".venv" / "bin" / "recount"
        now_ms = time.time_ns() // 1_000_000
        self._start_ms = now_ms - now_ms % (5 * MINUTE_MS) - 120 * MINUTE_MS
        self._sent = self._late = self._corrected = 0

    def up(self) -> DagRuns:
        """Start its broker, Spark and Airflow, whose DAGs of the stream run then."""
        done("make", "up", folder=self.folder)
        runs = DagRuns(self._api())
        done("make", "topics", folder=self.folder)
        for stream in (STREAM, WINDOWED):
            runs.unpause(f"stream__{stream}")
        return runs

    def import_anew(self) -> None:
        """Import from where the error of a project of the earlier release says."""
        refused = run(self.command, "describe", STREAM, folder=self.folder)
        assert refused.returncode != 0
        assert "from recount import" in refused.stderr
        assert "Traceback" not in refused.stderr
        for file in (file for part in _OWN for file in (self.folder / part).rglob("*.py")):
            text = re.sub(r"from recount\.core\.\w+ import", "from recount import", file.read_text())
            text = re.sub(r"from recount\.(spark|audit|backfill)\.commands import", "from recount.jobs import", text)
            file.write_text(text.replace("from recount.airflow.dags import", "from recount.airflow import"))

    def send(self) -> None:
        """Orders of the next 17 minutes of event time."""
        orders = [(self._start_ms + number * 1_000, number) for number in range(self._sent, self._sent + ORDERS)]
        self._sent += ORDERS
        produce(self._running().bootstrap_servers, orders)

    def send_late(self) -> None:
        """An order of an hour before all others, in windows of its own."""
        self._late += 1
        late_ms = self._start_ms - (60 + 10 * self._late) * MINUTE_MS
        produce(self._running().bootstrap_servers, [(late_ms, 10_000_000 + self._late)])

    def backfills(self, stream: str) -> str:
        """What a backfill says of itself."""
        return done(self.command, "backfill", "--stream", stream, folder=self.folder)

    def corrects(self) -> None:
        """A backfill of each stream publishes what its last late order makes, once."""
        for stream in (STREAM, WINDOWED):
            assert "published 1 backfill" in self.backfills(stream)  # the earlier release has a plural
            assert "nothing to correct: 0 corrections, published 0 backfills" in self.backfills(stream)
        self._corrected = self._late

    def adds_up(self) -> bool:
        """Whether the windows that have ended come to what was sent and corrected, each order once."""
        end_ms = self._start_ms + (self._sent - 1) * 1_000
        whole_ms = end_ms - end_ms % (5 * MINUTE_MS)
        expected = AMOUNT * ((whole_ms - self._start_ms) // 1_000 + self._corrected)
        awaited("the revenue", lambda: self._revenue(whole_ms) == expected, 600, 2)
        return awaited("the count", lambda: self._counted() == self._sent + self._late, 600, 2)

    def audit(self, runs: DagRuns, stream: str) -> dict[str, Any]:
        """The certificate of a new audit."""
        ended = runs.wait(f"audit__{stream}", runs.trigger(f"audit__{stream}"), timeout_s=1_500)
        assert ended.state == "success", ended.tasks
        certificates = [json.loads(file.read_text()) for file in self.certificates(stream)]
        newest: dict[str, Any] = max(certificates, key=lambda one: one["sequence"])
        return newest

    def certificates(self, stream: str) -> list[Path]:
        return sorted((self.home.reports / "certificates" / stream).glob("*.json"))

    def _rows(self, stream: str, *more: str) -> list[dict[str, Any]] | None:
        told = run(self.command, "query", stream, "--json", *more, folder=self.folder)
        return json.loads(told.stdout)["rows"] if told.returncode == 0 else None

    def _counted(self) -> int | None:
        rows = self._rows(WINDOWED, "--sink", "all-orders")
        return None if rows is None else sum(row["orders"] for row in rows)

    def _revenue(self, before_ms: int) -> Decimal | None:
        rows = self._rows(STREAM)
        if rows is None:
            return None
        return sum((Decimal(str(row["revenue"])) for row in rows if row["window_end"] <= before_ms), Decimal(0))

    def _running(self) -> Running:
        running = Running.read(self.home)
        assert running is not None
        return running

    def _api(self) -> AirflowApi:
        url = self._running().airflow_url
        assert url is not None
        return AirflowApi(url, self.home.airflow_passwords)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the earlier release, under a lower version than today's, which it had too; no index has it."""
    folder = tmp_path_factory.mktemp("earlier")
    archive = subprocess.run(["git", "archive", COMMIT], cwd=ROOT, capture_output=True, check=True).stdout  # noqa: S607
    subprocess.run(["tar", "--extract"], cwd=folder, input=archive, check=True)  # noqa: S607
    settings = folder / "pyproject.toml"
    settings.write_text(settings.read_text().replace('version = "0.1.0"', 'version = "0.1.0.dev1"'))
    subprocess.run([sys.executable, "-m", "hatchling", "build", "--target", "wheel"], cwd=folder, check=True)
    [built] = (folder / "dist").glob("recount-0.1.0.dev1-*.whl")
    return built


@pytest.fixture(scope="module")
def project(earlier: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("project")
    done(sys.executable, "-m", "venv", "venv", folder=folder)
    done(folder / "venv" / "bin" / "pip", "install", "--quiet", earlier, folder=folder)
    done(folder / "venv" / "bin" / "recount", "init", "my-project", folder=folder)
    made = Installed(folder / "my-project")
    copy(earlier, made.folder / "wheels")
    (made.folder / "my_project" / "topologies" / "windows.py").write_text(WINDOWED_MODULE)
    done("make", "setup", f"PYTHON={sys.executable}", folder=made.folder)
    yield made
    run(made.command, "down", "--delete", folder=made.folder)


def test_the_new_release_goes_on_where_the_earlier_one_stopped(project: Installed) -> None:
    runs = project.up()
    project.send()
    assert project.adds_up()
    project.send_late()
    assert project.adds_up()
    before = {stream: project.audit(runs, stream) for stream in (STREAM, WINDOWED)}
    assert [one["outcome"] for one in before.values()] == ["match", "match"]
    project.corrects()
    assert project.adds_up()
    done("make", "down", folder=project.folder)

    copy(wheel(), project.folder / "wheels")
    for requirements in project.folder.glob("requirements*.txt"):
        requirements.write_text(requirements.read_text().replace("0.1.0.dev1", "0.1.0"))
    done("make", "setup", folder=project.folder)
    assert done(project.command, "--version", folder=project.folder).split()[-1] == "0.1.0"
    project.import_anew()

    runs = project.up()
    assert project.adds_up()
    for stream in before:
        assert "published 0 backfills" in project.backfills(stream)
    project.send()
    project.send_late()
    assert project.adds_up()
    for stream, one in before.items():
        after = project.audit(runs, stream)
        assert after["outcome"] == "match"
        assert after["sequence"] == one["sequence"] + 1
        assert after["seed"] == one["audit"]
        done(project.command, "verify", "--chain", project.certificates(stream)[0].parent, folder=project.folder)
    project.corrects()
    assert project.adds_up()
