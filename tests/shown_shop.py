"""The shop as the pages of the plugin show it: real certificates and tables, statuses and DAGs that a test says."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api.security import get_user
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.statuses import a_status
from tests.unit.audit.documents import findings

from recount.airflow import pages
from recount.airflow.deployed import Deployment
from recount.airflow.links import PAGES, audit_dag, backfill_dag, night_dag, stream_dag
from recount.airflow.page_orders import DagState
from recount.audit.certificate.certificate_files import outcome_of
from recount.declare.registry import Declarations, declared
from recount.kafka.status import SPAN_MS, STEP_MS, Sample, StreamStatus
from recount.pages.stream_lines import BrokersSay
from recount.runtime.settings import Settings

NOW_MS = 1_795_600_000_000
ALICE = SimpleAuthManagerUser(username="alice", role="admin")


@dataclass
class SaidRuns:
    """DAGs in the ``known`` states; ``refused`` says who may not start which.

    ``started`` are the runs that were started: DAG, configuration, user.
    """

    known: dict[str, DagState]
    refused: set[tuple[str, str]] = field(default_factory=set)
    started: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)

    def states(self, dags: Collection[str]) -> Mapping[str, DagState]:
        return {dag: self.known[dag] for dag in dags if dag in self.known}

    def may_start(self, dag: str, user: SimpleAuthManagerUser) -> bool:
        return (dag, user.get_name()) not in self.refused

    def start(self, dag: str, conf: Mapping[str, Any], user: SimpleAuthManagerUser) -> None:
        self.started.append((dag, dict(conf), user.get_name()))


@dataclass
class ShownShop:
    """What the pages are made of; change it before a page is asked for."""

    root: Path
    declarations: Declarations
    say: BrokersSay
    runs: SaidRuns
    user: SimpleAuthManagerUser = ALICE

    @property
    def settings(self) -> Settings:
        places = {name: str(self.root / name) for name in ("data", "checkpoints", "reports", "logs", "run", "jars")}
        return Settings(profile="embedded", bootstrap_servers="127.0.0.1:1", **places)

    def say_of(self, stream: str, **said: Any) -> None:
        """Let the last status of ``stream`` say something else."""
        statuses = {**self.say.statuses, stream: replace(self.say.statuses[stream], **said)}
        self.say = replace(self.say, statuses=statuses)

    def certify(self, stream: str, nights: int, **said: Any) -> None:
        """Certificates of ``stream``, one a night up to now; what the newest says can be ``said``."""
        folder = self.root / "reports" / "certificates" / stream
        folder.mkdir(parents=True, exist_ok=True)
        for night in range(nights):
            audit = f"2026{night:04}T010000Z-abcdef"
            document = {**findings(audit), "stream": stream, **(said if night == nights - 1 else {})}
            at_s = NOW_MS / 1_000 - (nights - 1 - night) * 86_400
            for file, text in ((f"{audit}.json", json.dumps(document)), (f"{audit}.html", f"<h1>{stream} match</h1>")):
                (folder / file).write_text(text)
                os.utime(folder / file, (at_s, at_s))

    def try_expectations(self, stream: str, audit: str, text: str = "Every offset is accounted for") -> None:
        """An outcome of Great Expectations, of which one expectation failed."""
        check = {"expectation": text, "judged_as": None, "holds": True, "is_warning": False, "unexpected": 0}
        check |= {"column": "amount", "type": "expect_column_values_to_be_between"}
        failed = {**check, "holds": False, "unexpected": 3, "examples": ["{'key': 'EU'}"]}
        suites = {"raw_log": [{**check, "examples": []}], "reconciliation": [failed]}
        file = outcome_of(self.settings.reports, stream, audit)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"suites": suites, "disagreements": [], "lines": [], "exit_code": 3}))
        os.utime(file, (NOW_MS / 1_000, NOW_MS / 1_000))

    @contextmanager
    def served(self) -> Iterator[Starlette]:
        """The pages below their prefix, as Airflow mounts them, with a clock and without Airflow's login."""
        app = pages.app
        app.dependency_overrides = {
            pages.reader: lambda: None,
            pages.settings_here: lambda: self.settings,
            pages.deployed_here: lambda: Deployment(declarations=self.declarations),
            pages.brokers: lambda: lambda: self.say,
            pages.airflow_runs: lambda: self.runs,
            pages.clock_ms: lambda: NOW_MS,
            get_user: lambda: self.user,
        }
        try:
            yield Starlette(routes=[Mount(PAGES, app)])
        finally:
            app.dependency_overrides = {}


def shown_shop(root: Path) -> ShownShop:
    """Every stream of the shop runs, but for one that failed, one that is stopped and one that never started."""
    shop, chance = declared(), random.Random(14)
    samples = {name: _hour(name, chance) for name in shop.streams if name != "order-balances"}
    statuses = {name: one[-1].status for name, one in samples.items()}
    statuses["page-paths"] = replace(statuses["page-paths"], state="failed", error="disk full: /data is at 100 %")
    statuses["departed-users"] = replace(statuses["departed-users"], state="stopped")
    statuses["matched-orders"] = replace(statuses["matched-orders"], lag=12_345_678)
    dags = [*(kind(name) for name in shop.streams for kind in (stream_dag, audit_dag, backfill_dag)), "stream_control"]
    nights = [night_dag(group) for group in shop.groups]
    known = {dag: DagState(paused=False, next_ms=None) for dag in dags}
    known |= {dag: DagState(paused=False, next_ms=NOW_MS + 6 * 3_600_000) for dag in nights}
    return ShownShop(
        root=root, declarations=shop, say=BrokersSay(statuses=statuses, samples=samples), runs=SaidRuns(known=known)
    )


def _hour(stream: str, chance: random.Random) -> list[Sample]:
    """An hour of a stream with a rate of its own, behind for a while."""
    rate, total = chance.choice([0.4, 12, 250, 4_000]), chance.randrange(10**6, 10**8)
    began = NOW_MS - SPAN_MS
    behind = chance.randrange(20, 90)
    found = []
    for number in range(SPAN_MS // STEP_MS):
        total += round(rate * STEP_MS / 1_000 * chance.uniform(0.8, 1.2))
        lag = round(rate * chance.uniform(0, 5)) + round(max(0, 40 - abs(number - behind)) * rate * 4)
        found.append(
            Sample(at_ms=began + number * STEP_MS, status=_status(stream, began + number * STEP_MS, rate, total, lag))
        )
    return found


def _status(stream: str, at_ms: int, rate: float, total: int, lag: int) -> StreamStatus:
    return a_status(
        stream=stream,
        driver_id=f"driver-of-{stream}",
        application_id="local-1795600000000",
        lease_epoch=7,
        batch=at_ms // STEP_MS % 100_000,
        started_at_ms=NOW_MS - 3 * 86_400_000,
        heartbeat_ms=at_ms + STEP_MS - 4_000,
        last_progress_ms=at_ms + STEP_MS - 5_000,
        lag=lag,
        records_total=total,
        records_per_second=rate,
        late_records=total // 5_000,
        dead_letters=total // 90_000,
        batch_records=1_000,
        frontier_ms=at_ms - 61_000,
        stream_time_ms=at_ms,
        batch_duration_ms=900 + at_ms // STEP_MS * 7_919 % 700,
        commit_duration_ms=180,
        memory_used=2 << 30,
        memory_left=5 << 30,
        memory_limit=8 << 30,
    )
