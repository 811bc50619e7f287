"""The steps of the demo of the whole shop: what people do in Airflow, one kill -9, one lie, and its repair."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

from recount.audit.certificate import load
from recount.core.errors import Terminal, Transient
from recount.core.registry import Declarations
from recount.kafka.connection import Connection
from recount.kafka.status import StatusBoard, StreamStatus
from recount.local import daemon
from recount.local.airflow import EmbeddedAirflow
from recount.local.dag_runs import DagRun, DagRuns
from recount.local.demo_outcome import Audited
from recount.local.first_answer import Found, first_answer
from recount.local.profile import Profile
from recount.play.planted_days import PlantedDays
from recount.play.shop_flow import Planted
from recount.play.shop_outcome import Check
from recount.play.shop_reading import ShopReading
from recount.play.shop_source import ShopSource

_LIMIT_S = 3_600.0
_POLL_S = 2.0


class ShopDemoSteps:
    """The steps on a started ``profile``; each returns when it is done and raises when it takes too long."""

    def __init__(self, profile: Profile, declarations: Declarations, say: Callable[[str], None]) -> None:
        if profile.airflow is None:
            raise Terminal(
                "a demo without Airflow", expected="a profile that starts it", remedy="start it with Airflow"
            )
        self.airflow: EmbeddedAirflow = profile.airflow
        self._home, self._settings = profile.home, profile.settings
        self._declarations = declarations
        self._say = say
        self._runs = DagRuns(profile.airflow.api)
        self._connection = Connection.of(profile.settings)
        # of the sources, who is nobody of Recount: no role may write to them
        self._owner = profile.kafka.listeners.keeper()

    def start(self) -> None:
        """Create the topics and switch every stream on."""
        self._runs.succeed("topics", _LIMIT_S)
        self._say("topics created by the DAG topics")
        self._runs.unpause_streams(list(self._declarations.streams))
        self._say(f"{len(self._declarations.streams)} streams switched on")

    def produce(self, days: PlantedDays, number: int) -> None:
        """Write the records of a day to their topics; those of tables are there before the others come."""
        records = days.day(number)
        at_once = (Planted(due_ms=0, arrival=record) for record in records)
        with ShopSource(self._owner.producer({"linger.ms": 20}), at_once) as source:
            source.join()
        source.require_well()
        faults = days.faults(number)
        self._say(
            f"day {number + 1}: {len(records):,} records, of them {faults['late']} late, {faults['bad']} bad, "
            f"{faults['tombstone']} tombstones"
        )

    def kill_driver(self, group: str) -> Mapping[str, int]:
        """kill -9 to the driver of ``group`` while it reads; returns the lease epochs of its streams before."""
        members = self._declarations.group(group).members
        reading = ShopReading(self._connection, self._declarations)
        whole = self._until("the log to be looked at", lambda: _sum_of(members, reading.unread()))
        rest = self._until(
            f"a batch of the group {group} to be committed",
            lambda: found if not (found := _sum_of(members, reading.unread())) or found < whole else None,
        )
        epochs = {name: status.lease_epoch for name, status in self._statuses().items() if name in members}
        [driver] = (one for one in daemon.drivers(self._home) if one.name == group)
        os.killpg(os.getpgid(driver.pid), signal.SIGKILL)
        self._say(
            f"driver of the group {group}, pid {driver.pid}, killed with -9; {rest:,} of {whole:,} reads were left"
        )
        return epochs

    def read_all(self, day: int) -> None:
        """Wait until every stream runs and has read all there is."""
        reading, streams = ShopReading(self._connection, self._declarations), self._declarations.streams

        def left() -> bool | None:
            return not any(reading.unread().values()) or None

        def all_run() -> bool | None:
            said = self._statuses()
            return all(name in said and said[name].state == "running" for name in streams) or None

        self._until("every stream to read all there is", left)
        self._until("every stream to run", all_run)
        self._say(f"day {day + 1} is read by all {len(streams)} streams")

    def relaunched(self, before: Mapping[str, int]) -> Check:
        """Whether each of the streams that a kill ended comes to have another lease than ``before``."""

        def again() -> int:
            said = self._statuses()
            return sum(said[name].lease_epoch > epoch for name, epoch in before.items())

        with suppress(Transient):
            self._until("the streams of the killed driver to be relaunched", lambda: again() == len(before) or None)
        return Check(
            name="streams relaunched after kill -9",
            expected=f"{len(before)} of {len(before)}",
            found=f"{again()} of {len(before)}",
        )

    def start_night(self, through: datetime) -> Mapping[str, str]:
        """Start the night of every group, up to what was recorded before ``through``; returns the runs."""
        return {dag: self._runs.trigger(dag, through=through.isoformat()) for dag in self._nights()}

    def end_night(self, number: int, runs: Mapping[str, str]) -> Mapping[str, Audited]:
        """Wait for the runs; returns what was judged, by stream."""
        ended = [self._runs.wait(dag, run, _LIMIT_S) for dag, run in runs.items()]
        audits: dict[str, Audited] = {}
        for run in ended:
            for stream in self._declarations.group(run.dag.removeprefix("night__")).members:
                newest = self.newest_audit(stream, run)
                # a stream that was not judged still has the certificate of the night before, or none
                if newest is not None and newest.document["sequence"] == number + 1:
                    audits[stream] = newest
        red = sorted(stream for stream, audit in audits.items() if audit.outcome != "match")
        self._say(f"night {number + 1}: {len(audits)} streams audited; no match: {', '.join(red) or 'none'}")
        return audits

    def audit(self, stream: str) -> Audited:
        """Run the audit DAG of ``stream`` by hand, as of now."""
        run = self._runs.wait(f"audit__{stream}", self._runs.trigger(f"audit__{stream}", through="now"), _LIMIT_S)
        return self._required_audit(stream, run)

    def offer_backfill(self, stream: str) -> None:
        """Switch the backfill of ``stream`` on: the night that finds grace misses starts it."""
        self._runs.unpause(f"backfill__{stream}")

    def backfill(self, stream: str) -> Audited:
        """Approve the backfill that the first night has started; returns the audit that follows it."""
        dag = f"backfill__{stream}"
        run = min(self._runs.ids(dag), default=None) or self._runs.wait_for_next(dag, set(), _LIMIT_S)
        self._runs.approve(dag, run, "approval", _LIMIT_S)
        self._say(f"backfill of {stream} approved")
        repaired = self._runs.wait(dag, run, _LIMIT_S)
        if repaired.state != "success":
            raise Terminal("the backfill failed", given=repaired.tasks, remedy="read the log of the task that failed")
        return self._required_audit(stream, repaired)

    def newest_audit(self, stream: str, run: DagRun) -> Audited | None:
        """The newest certificate of ``stream``, as that of ``run``."""
        certificates = (Path(self._settings.reports) / "certificates" / stream).glob("*.json")
        newest = max(certificates, key=lambda path: int(load(path)["sequence"]), default=None)
        return None if newest is None else Audited(run=run, certificate=newest)

    def _required_audit(self, stream: str, run: DagRun) -> Audited:
        found = self.newest_audit(stream, run)
        if found is None:
            raise Terminal("the audit issued no certificate", given=run.tasks, remedy="read the log of its task audit")
        self._say(f"audit of {stream}: {found.outcome}, {found.violations} violations, {found.misses} grace misses")
        return found

    def _nights(self) -> Sequence[str]:
        return [f"night__{name}" for name in self._declarations.groups]

    def _statuses(self) -> Mapping[str, StreamStatus]:
        with closing(StatusBoard(self._connection)) as board:
            return board.latest()

    def _until(self, what: str, look: Callable[[], Found | None]) -> Found:
        """The first answer of ``look`` that is not None; a broker that does not answer is asked again."""
        late = Transient(
            "the shop took too long",
            given=what,
            expected=f"within {_LIMIT_S:.0f} s",
            remedy=f"read the logs in {self._settings.logs}/streams",
        )
        return first_answer(look, _LIMIT_S, late, poll_s=_POLL_S, passing=(Transient,))


def _sum_of(members: Iterable[str], unread: Mapping[str, int]) -> int:
    return sum(unread[name] for name in members)
