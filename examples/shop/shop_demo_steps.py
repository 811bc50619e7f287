"""The steps of the demo of the whole shop: what people do in Airflow and by command, and one kill -9."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime

from examples.shop.expected_shop import PlantedDays
from examples.shop.running_shop import ShopSource
from examples.shop.shop_outcome import Check, ShopNight, newest_of
from examples.shop.shop_records import Planted

from recount.declare.registry import Declarations
from recount.kafka.connection import Connection
from recount.kafka.lags import lags_of
from recount.kafka.status import StatusBoard, StreamStatus
from recount.profile import daemon
from recount.profile.dag_runs import DagRun, DagRuns, Found, first_answer
from recount.profile.demo_steps import Judged
from recount.profile.embedded import Profile
from recount.profile.embedded_airflow import EmbeddedAirflow
from recount.runtime.errors import Terminal, Transient
from recount.runtime.times import quantity

_LIMIT_S = 1_800.0
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
        # as somebody has it who calls `recount` beside the profile
        self._environment = {**os.environ, **profile.environment}
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
        self._say(f"{quantity(len(self._declarations.streams), 'stream')} switched on")

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
        whole = self._until("the log to be looked at", lambda: sum(reading.unread(members).values()))
        rest = self._until(
            f"a batch of the group {group} to be committed",
            lambda: found if not (found := sum(reading.unread(members).values())) or found < whole else None,
        )
        epochs = {name: status.lease_epoch for name, status in self._statuses().items() if name in members}
        [driver] = (one for one in daemon.drivers(self._home) if one.name == group)
        os.killpg(os.getpgid(driver.pid), signal.SIGKILL)
        self._say(
            f"driver of the group {group}, pid {driver.pid}, killed with -9; {rest:,} of {whole:,} reads were left"
        )
        return epochs

    def read_all(self, day: int) -> None:
        """Wait until every stream runs and has read all there is; nothing is produced meanwhile."""
        reading, streams = ShopReading(self._connection, self._declarations), self._declarations.streams
        behind = set(streams)

        def left() -> bool | None:
            # who has read all is asked no more: to ask takes processor time from those who read
            behind.intersection_update([name for name, count in reading.unread(behind).items() if count])
            return not behind or None

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
        found = f"{again()} of {len(before)}"
        self._say(f"{found} streams of the killed driver are launched again")
        return Check(name="streams relaunched after kill -9", expected=f"{len(before)} of {len(before)}", found=found)

    def begin_night(self, number: int) -> ShopNight:
        """Start the night ``number``, from 1: one command audits every stream, up to what is recorded by now."""
        night = ShopNight.begin(self._home, f"night-{number}", datetime.now(UTC), self._environment)
        self._say(f"night {number}: {night.command}")
        return night

    def end_night(self, number: int, night: ShopNight) -> Mapping[str, Judged]:
        """Wait for the night; returns what was judged, by stream."""
        judged = night.end(self._declarations.topologies, _LIMIT_S, self._say)
        red = sorted(stream for stream, one in judged.items() if one.outcome != "match")
        last_s = max(one.certificate.stat().st_mtime for one in judged.values())
        self._say(
            f"night {number}: {len(judged)} streams audited, the last after {last_s - night.process.started:.0f} s; "
            f"no match: {', '.join(red) or 'none'}"
        )
        return judged

    def begin_audit(self, stream: str) -> str:
        """Start the audit DAG of ``stream`` by hand, as of now; returns the run."""
        run = self._runs.trigger(f"audit__{stream}", through="now")
        self._say(f"audit of {stream} started by hand")
        return run

    def end_audit(self, stream: str, run: str) -> Judged:
        """Wait for the run; returns what it judged."""
        return self._newest_of(stream, self._runs.wait(f"audit__{stream}", run, _LIMIT_S))

    def begin_backfill(self, stream: str) -> str:
        """Start the backfill of ``stream`` by hand: it shows what would change, and waits; returns the run."""
        run = self._runs.trigger(f"backfill__{stream}")
        self._say(f"backfill of {stream} started by hand: it will ask for approval")
        return run

    def end_backfill(self, stream: str, run: str) -> Judged:
        """Approve the backfill and wait for it; returns the audit that follows it."""
        dag = f"backfill__{stream}"
        self._runs.approve(dag, run, "approval", _LIMIT_S)
        self._say(f"backfill of {stream} approved")
        repaired = self._runs.wait(dag, run, _LIMIT_S)
        if repaired.state != "success":
            raise Terminal("the backfill failed", given=repaired.tasks, remedy="read the log of the task that failed")
        return self._newest_of(stream, repaired)

    def _newest_of(self, stream: str, run: DagRun) -> Judged:
        found = newest_of(self._home, stream)
        if found is None:
            raise Terminal("the audit issued no certificate", given=run.tasks, remedy="read the log of its task audit")
        self._say(f"audit of {stream}: {found.outcome}, {found.violations} violations, {found.misses} grace misses")
        return found

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


class ShopReading:
    """Looks at the streams of ``declarations``, whose topics are there."""

    def __init__(self, connection: Connection, declarations: Declarations) -> None:
        self._connection = connection
        self._topics = declarations.read_topics

    def unread(self, streams: Iterable[str] | None = None) -> Mapping[str, int]:
        """Of each of ``streams`` (None: of all) how many records of its topics no batch has committed.

        Raises ``Transient`` where no broker says so.
        """
        asked = {stream: self._topics[stream] for stream in (self._topics if streams is None else streams)}
        return {stream: lag.records for stream, lag in lags_of(self._connection, asked).items()}
