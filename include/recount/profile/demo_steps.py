"""Steps of the demo and their outcome: what a user does in Airflow, through its REST API, and one kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from recount.audit.certificate.certificate_files import expectations_page_of, load, verify_file
from recount.audit.certificate.summary import sides_in_words
from recount.certificate.document import Certificate, Unverified
from recount.declare.registry import declared
from recount.kafka.connection import Connection
from recount.kafka.lags import PartitionLag, lags_of
from recount.kafka.status import StatusBoard, StreamStatus
from recount.profile.dag_runs import DagRun, DagRuns, first_answer
from recount.profile.embedded import Profile
from recount.profile.embedded_airflow import EmbeddedAirflow
from recount.runtime.errors import Terminal, Transient
from recount.runtime.times import told_window

if TYPE_CHECKING:
    from recount.profile.demo import OrderFlow

TOPOLOGIES = "topologies.orders"
"""The module that declares what reads the flow: the demo's Airflow shows no streams of other modules."""
STREAM = "revenue-by-region"
_AUDIT, _BACKFILL, _STREAM = f"audit__{STREAM}", f"backfill__{STREAM}", f"stream__{STREAM}"
_PROVED = "proved"
_LIMIT_S = 600.0
_INTO_THE_BATCH_S = 0.7
"""A batch of some hundred thousand records takes longer than this."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    certificate: Path

    @cached_property
    def document(self) -> Certificate:
        return load(self.certificate)

    @property
    def outcome(self) -> str:
        return str(self.document["outcome"])

    @property
    def violations(self) -> int:
        return int(self.document["differences_found"])

    @property
    def misses(self) -> int:
        """Results that unlimited grace would change."""
        return int(self.document["grace_misses_found"])

    @property
    def unexplained(self) -> int:
        """Grace misses that the late ledger does not explain."""
        return sum(not miss["explained"] for miss in self.document["grace_misses"])

    @property
    def verifies(self) -> bool:
        try:
            verify_file(self.certificate)
        except Unverified:
            return False
        return True


@dataclass(frozen=True, kw_only=True)
class Audited(Judged):
    run: DagRun


@dataclass(frozen=True, kw_only=True)
class DemoOutcome:
    """The two audits of a demo beside what was planted; ``second`` is None when the first found a violation."""

    flow: OrderFlow
    first: Audited
    second: Audited | None
    injected: bool
    airflow_url: str
    reports: Path
    seconds: float

    @property
    def held(self) -> bool:
        """Whether every check held. With an injection none may: a demo of a tampered output never succeeds."""
        return not self.injected and all(holds for _, _, _, holds in self._checks())

    def summary(self) -> RenderableType:
        """One screen: each check with what was expected and found, and where to look."""
        table = Table("", "expected", "found", "", box=None, title="\nWhat held", title_justify="left")
        for name, expected, found, holds in self._checks():
            table.add_row(name, expected, found, "[green]held[/]" if holds else "[red]DID NOT HOLD[/]")
        last = self.second or self.first
        places = {
            "Airflow": self.airflow_url,
            "expectations": self._expectations(),
            "certificate": last.certificate.with_suffix(".html"),
            "verify it": f"recount verify {last.certificate}",
            "took": f"{self.seconds:.0f} s",
        }
        # A path that is cut or wrapped cannot be copied, so these are lines and no table.
        lines = [Text(f"{name:<12} {place}", no_wrap=True, overflow="ignore") for name, place in places.items()]
        return Group(table, *self._differences(), "", *lines)

    def _checks(self) -> Iterator[tuple[str, str, str, bool]]:
        totals = self.first.document["totals"]
        yield _equal("records in", self.flow.records, totals["records"])
        yield _equal("late records", self.flow.late, totals["late"])
        yield _equal("bad records, dead-lettered", self.flow.bad, totals["dead_lettered"])
        yield _equal("fidelity violations", 0, self.first.violations)
        misses = self.first.misses
        yield (
            "grace misses",
            "some, each explained",
            f"{misses}, {self.first.unexplained} unexplained",
            (misses > 0 and not self.first.unexplained),
        )
        if self.second:
            yield _equal("grace misses after the backfill", 0, self.second.misses)
            yield _equal("violations after the backfill", 0, self.second.violations)
        for name, audited in (("audit in Airflow", self.first), ("audit after the backfill", self.second)):
            if audited:
                yield name, "success", audited.run.state, audited.run.state == "success"
        verifies = (self.second or self.first).verifies
        yield "certificate chain", "verifies offline", "verifies" if verifies else "does not", verifies

    def _differences(self) -> Iterator[RenderableType]:
        if not self.first.violations:
            return
        table = Table(
            "verdict", "where", "key", "window", "expected", "actual", "cause", title="\nDifferences", box=None
        )
        for found in self.first.document["differences"][:10]:
            window = told_window(found["window_start"], found["window_end"])
            expected, actual = sides_in_words(found["expected"], found["actual"])
            table.add_row(
                *(str(found[name]) for name in ("verdict", "place", "key")),
                window,
                *map(str, (expected, actual, found["cause"])),
            )
        yield table

    def _expectations(self) -> Path:
        """A page of ours: the Data Docs load their styles from the internet."""
        last = (self.second or self.first).document
        return expectations_page_of(str(self.reports), last["stream"], last["audit"])


def _equal(name: str, expected: int, found: int) -> tuple[str, str, str, bool]:
    return name, f"{expected:,}", f"{found:,}", expected == found


class DemoSteps:
    """The steps on a started ``profile``; each returns when it is done and raises when it takes too long."""

    def __init__(self, profile: Profile, flow: OrderFlow, say: Callable[[str], None]) -> None:
        if profile.airflow is None:
            raise Terminal.of("demo-without-airflow")
        self.airflow: EmbeddedAirflow = profile.airflow
        self._settings = profile.settings
        self._environment = profile.environment
        self._flow = flow
        self._say = say
        self._runs = DagRuns(self.airflow.api)
        self._connection = Connection.of(profile.settings)
        # of the source, who is nobody of Recount: no role may write to it
        self._owner = profile.kafka.listeners.keeper()

    def create_topics(self) -> None:
        self._runs.succeed("topics", _LIMIT_S)
        self._say("topics created by the DAG topics")

    def stream_through_a_crash(self) -> None:
        """Launch the stream, feed it, kill its driver in the middle, and wait until all is read."""
        self._runs.unpause(_STREAM)
        first = self._wait("the stream to run", lambda status: status.state == "running")
        self._say(f"stream launched by the DAG {_STREAM}: pid {first.pid}, lease epoch {first.lease_epoch}")
        producing = threading.Thread(
            target=self._flow.produce, args=(self._owner, declared(TOPOLOGIES).topics["orders"]), daemon=True
        )
        producing.start()
        running = self._wait(
            "a batch to be under way after the first one",
            lambda _: 0 < self._committed() < self._planned() or (not producing.is_alive() and not self._lag()),
        )
        time.sleep(_INTO_THE_BATCH_S)
        os.killpg(os.getpgid(running.pid), signal.SIGKILL)
        self._say(f"driver killed with -9, {self._committed():,} of {self._flow.records:,} records committed")
        producing.join()
        done = self._wait(
            "the relaunched stream to read the rest",
            lambda status: status.lease_epoch > first.lease_epoch and status.state == "running" and self._lag() == 0,
        )
        self._say(f"relaunched by Airflow: pid {done.pid}, lease epoch {done.lease_epoch}, and all is read")

    def tamper(self, kind: str) -> None:
        """Tamper with the output, as somebody with access to it could."""
        command = [sys.executable, "-m", "recount.profile.tamper", "--stream", STREAM, "--kind", kind]
        log = Path(self._settings.logs) / "tampering.log"
        with log.open("wb") as output:
            environment = {**os.environ, **self._environment}
            subprocess.run(command, env=environment, check=True, timeout=_LIMIT_S, stdout=output, stderr=output)
        self._say(f"output tampered with: {kind}")

    def audit(self) -> Audited:
        """Run the audit DAG by hand, as of now, until it is proved or has failed; its panels may be made still."""
        self._runs.unpause(_BACKFILL)
        run = self._runs.wait_for_task(_AUDIT, self._runs.trigger(_AUDIT, through="now"), _PROVED, _LIMIT_S)
        return self._audited(run)

    def ended(self, audited: Audited) -> Audited:
        return replace(audited, run=self._runs.wait(_AUDIT, audited.run.run, _LIMIT_S))

    def backfill(self) -> Audited:
        """Approve the backfill that the audit's asset event has started, and wait for its audit."""
        run = self._runs.wait_for_next(_BACKFILL, set(), _LIMIT_S)
        self._say("backfill started by the asset event of the audit, waiting for approval")
        audits = self._runs.ids(_AUDIT)
        self._runs.approve(_BACKFILL, run, "approval", _LIMIT_S)
        self._say("approved")
        repaired = self._runs.wait(_BACKFILL, run, _LIMIT_S)
        if repaired.state != "success":
            raise Terminal.of("backfill-failed", given=repaired.tasks, url=self.airflow.url)
        again = self._runs.wait_for_next(_AUDIT, audits, _LIMIT_S)
        return self._audited(self._runs.wait(_AUDIT, again, _LIMIT_S))

    def _audited(self, run: DagRun) -> Audited:
        """The certificate that the audit of ``run`` issued: the newest."""
        folder = Path(self._settings.reports) / "certificates" / STREAM
        newest = max(folder.glob("*.json"), key=lambda path: int(load(path)["sequence"]), default=None)
        if newest is None:
            raise Terminal.of("no-certificate-issued", given=run.tasks, url=self.airflow.url)
        audited = Audited(run=run, certificate=newest)
        self._say(
            f"audit {audited.outcome}: {audited.violations} violations, {audited.misses} grace misses; "
            f"tasks {', '.join(f'{task} {state}' for task, state in sorted(run.tasks.items()))}"
        )
        return audited

    def _lag(self) -> int:
        return sum(part.lag for part in self._parts())

    def _committed(self) -> int:
        return sum(part.committed or 0 for part in self._parts())

    def _planned(self) -> int:
        """Up to how many records the batches go that Spark has planned so far."""
        offsets = Path(self._settings.checkpoints) / STREAM / "offsets"
        newest = max((int(file.name) for file in offsets.glob("[0-9]*")), default=None)
        if newest is None:
            return 0
        ends: dict[str, dict[str, int]] = json.loads((offsets / str(newest)).read_text().splitlines()[-1])
        return sum(ends["orders"].values())

    def _parts(self) -> Collection[PartitionLag]:
        return lags_of(self._connection, {STREAM: ["orders"]})[STREAM].partitions.values()

    def _wait(self, what: str, holds: Callable[[StreamStatus], bool]) -> StreamStatus:
        """The first status for which ``holds`` is true."""
        late = Transient.of("stream-too-slow", given=what, limit_s=_LIMIT_S, logs=self._settings.logs, stream=STREAM)
        with closing(StatusBoard(self._connection)) as board:

            def found() -> StreamStatus | None:
                status = board.of(STREAM)
                return status if status and holds(status) else None

            return first_answer(found, _LIMIT_S, late, poll_s=0.2)
