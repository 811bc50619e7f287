"""A long run: streams at work, a producer that never rests, faults as planned, audits in between; and the reckoning."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from confluent_kafka import KafkaException
from tests.chaos.fault_plan import BROKERS, WORKERS, Fault, Strike
from tests.chaos.held_against import Interpreted, ProgressWatch, differences, log_differences
from tests.chaos.long_streams import TOPOLOGIES
from tests.chaos.order_desk import OrderDesk, Sent
from tests.chaos.supervised import Audit, AuditRounds, Ended, Supervised
from tests.integration.engine.purchases import create_topics

from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection
from recount.kafka.lags import lags_of
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Home, Project
from recount.profile.spark_cluster import EmbeddedSpark
from recount.runtime.errors import RecountError, Transient
from recount.runtime.settings import Settings

STREAMS = tuple(topology.name for topology in TOPOLOGIES)
_TICK_S, _LOOK_S = 0.2, 2.0
_AUDITS_EVERY_S = 240.0
_LOOK_AHEAD = 4
_FIRST_PROGRESS_S, _DRAINED_S, _STOPPED_S, _AUDITED_S, _IN_SYNC_S = 300.0, 600.0, 180.0, 1_500.0, 120.0
_LOCAL = "local[1]"


@dataclass(kw_only=True)
class Done:
    """A fault that was done: when, by the run's clock, and how long each stream that it hit stood still after it."""

    fault: Fault
    at_s: float
    at_once_with: str | None = None
    pauses_s: dict[str, float] = field(default_factory=dict)


@dataclass(kw_only=True)
class Found:
    """What a long run found; ``differences`` holds everything that is not as it must be."""

    minutes: float
    done: list[Done] = field(default_factory=list)
    audits: list[Audit] = field(default_factory=list)
    ended: list[tuple[float, Ended]] = field(default_factory=list)
    compared: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    sent: int = 0
    launches: dict[str, int] = field(default_factory=dict)

    @property
    def last_line(self) -> str:
        """What the program says at the end."""
        return f"{len(self.done)} faults, {len(self.audits)} audits, {len(self.differences)} differences"


class ChaosRun:
    """Runs ``plan`` for ``minutes`` in ``folder``; ``per_second`` orders are written meanwhile.

    The first ``on_workers`` of the streams have their tasks on Spark's workers; the others, and the audits, on
    ``local[1]``: executors of three streams that are restarted all the time do not fit two cores.

    A context manager: brokers, Spark, producer and drivers are started on entry, and stopped on exit, whatever comes.
    """

    def __init__(
        self,
        folder: Path,
        project: Project,
        *,
        plan: Sequence[Strike],
        minutes: float,
        per_second: int,
        on_workers: int,
        seed: int,
        tell: Callable[[str], None],
    ) -> None:
        self.home = Home(path=folder / "home")
        self.found = Found(minutes=minutes)
        self._times_s = [strike.at_s for strike in plan]
        self._plan, self._per_second, self._seed = list(plan), per_second, seed
        self._on_workers = STREAMS[:on_workers]
        self._tell = tell
        self._kafka = EmbeddedKafka(home=self.home, project=project, brokers=BROKERS)
        self._spark = EmbeddedSpark(home=self.home, workers=WORKERS, cores=8, memory="8g")
        self._settings = Settings(
            profile="embedded",
            bootstrap_servers=self._kafka.bootstrap_servers,
            jars=str(project.spark_jars),
            topologies="tests.chaos.long_streams",
            data=str(self.home.tables),
            checkpoints=str(self.home.checkpoints),
            reports=str(self.home.reports),
            logs=str(self.home.logs),
            run=str(self.home.run),
            spark_security=self._spark.security,
        )
        self.connection = Connection.of(self._settings)
        self._begun_s = time.monotonic()
        self._over = threading.Event()
        self._away: dict[str, Future[None]] = {}
        self._orders: list[tuple[Fault, Future[bool]]] = []
        self._held: list[tuple[float, Callable[[], None]]] = []
        self._waiting: list[tuple[Done, float]] = []
        self._next_audits_s = min(_AUDITS_EVERY_S, minutes * 30)
        self._audits_done: dict[str, float] = {}
        self._next_look_s = 0.0

    def __enter__(self) -> ChaosRun:
        with ExitStack() as stack:
            stack.enter_context(self._kafka)
            stack.enter_context(self._spark)
            create_topics(self.connection, TOPOLOGIES)
            self._watch = stack.enter_context(ProgressWatch(self.connection, TOPOLOGIES))
            self._desk = stack.enter_context(OrderDesk(self.connection, self._per_second, self._seed))
            self._pool = ThreadPoolExecutor(max_workers=6)
            stack.callback(self._pool.shutdown, wait=True, cancel_futures=True)
            masters = {name: self._spark.master if name in self._on_workers else _LOCAL for name in STREAMS}
            self._streams = {
                name: Supervised(name, master, self._settings, self.connection, self._driver_ended)
                for name, master in masters.items()
            }
            for stream in self._streams.values():
                stack.callback(stream.kill_all)
            self._audits = AuditRounds(_LOCAL, self._settings, self._audited, self._audit_killed, self._say)
            stack.callback(self._audits.kill)
            stack.callback(self._over.set)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self) -> None:
        """The whole of it; what is wrong is in ``found.differences``."""
        self._until(lambda: all(self._watch.read(name) for name in STREAMS), _FIRST_PROGRESS_S, "the first batches")
        self._begun_s = time.monotonic()
        self._say(f"all streams are at work; {sum(len(strike.faults) for strike in self._plan)} faults are planned")
        while self._clock_s() < self.found.minutes * 60:
            self._strike_if_due()
            if self._clock_s() >= self._next_audits_s:
                self._next_audits_s += _AUDITS_EVERY_S
                self._audits.ask(STREAMS)
            self._tend()
            time.sleep(_TICK_S)
        self._come_to_rest()
        self._reckon()

    def _strike_if_due(self) -> None:
        """Do what is next; where that has to wait for a machine to come back, one of those after it takes its turn."""
        if not self._plan or self._clock_s() < self._times_s[0]:
            return
        strike = next(filter(self._machines_are_back, self._plan[:_LOOK_AHEAD]), None)
        if strike is None:
            return
        self._plan.remove(strike)
        self._times_s.pop(0)
        for fault in strike.faults:
            others = [str(other) for other in strike.faults if other is not fault]
            self._strike(fault, others[0] if others else None)

    def _machines_are_back(self, strike: Strike) -> bool:
        """One broker, and one worker, at a time: with two brokers away nothing can be committed."""
        machines = {fault.kind.split()[0] for fault in strike.faults}
        return all(machine not in self._away or self._away[machine].done() for machine in machines)

    def _strike(self, fault: Fault, at_once_with: str | None) -> None:
        stream = self._streams.get(fault.target)
        match fault.kind:
            case "driver killed" | "driver killed, its checkpoint removed":
                assert stream is not None
                stream.kill(with_checkpoint=fault.kind != "driver killed")
            case "driver stopped by order":
                assert stream is not None
                self._orders.append((fault, self._pool.submit(stream.order_stop)))
                return
            case "driver held up beside a new one":
                assert stream is not None
                held = stream.hold_up()
                if held is not None:
                    self._held.append((time.monotonic() + fault.lasts_s + 15, lambda: stream.let_go(held)))
            case "worker killed":
                self._spark.kill_worker(int(fault.target))
                self._away["worker"] = self._pool.submit(self._worker_returns, fault)
            case "broker killed" | "broker restarted":
                self._away["broker"] = self._pool.submit(self._broker_goes, fault)
            case "audit killed":
                self._audits.doom(fault)
                return
        self._did(fault, at_once_with)

    def _worker_returns(self, fault: Fault) -> None:
        if not self._over.wait(fault.lasts_s):
            _patiently(self._spark.start)

    def _broker_goes(self, fault: Fault) -> None:
        self._kafka.stop_broker(int(fault.target), patience_s=0 if fault.kind == "broker killed" else 20)
        if self._over.wait(fault.lasts_s):
            return
        _patiently(self._kafka.start)
        admin = self.connection.admin()
        deadline = time.monotonic() + _IN_SYNC_S
        while time.monotonic() < deadline and not self._over.wait(0.5):
            try:
                topics = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics.values()
            except KafkaException:
                continue
            parts = [part for topic in topics for part in topic.partitions.values()]
            if all(len(part.isrs) == len(part.replicas) for part in parts):
                return
        raise Transient("a broker did not catch up", given=fault.target, expected=f"in sync within {_IN_SYNC_S:.0f} s")

    def _did(self, fault: Fault, at_once_with: str | None = None) -> None:
        done = Done(fault=fault, at_s=self._clock_s(), at_once_with=at_once_with)
        self.found.done.append(done)
        self._waiting.append((done, time.monotonic()))
        beside = f", at once with {at_once_with}" if at_once_with else ""
        self._say(f"fault {len(self.found.done)}: {fault}{beside}")

    def _tend(self) -> None:
        for stream in self._streams.values():
            stream.tend()
        self._audits.tend()
        now_s = time.monotonic()
        for due_s, let_go in list(self._held):
            if now_s >= due_s:
                self._held.remove((due_s, let_go))
                let_go()
        for fault, order in list(self._orders):
            if order.done():
                self._orders.remove((fault, order))
                if order.result():
                    self._did(fault)
        for machine, back in list(self._away.items()):
            if back.done():
                back.result()
                del self._away[machine]
        self._waiting = [(done, since_s) for done, since_s in self._waiting if not self._has_recovered(done, since_s)]

    def _has_recovered(self, done: Done, since_s: float) -> bool:
        machine = done.fault.kind.split()[0]
        if machine == "audit":
            judged_s = self._audits_done.get(done.fault.target, 0.0)
            if judged_s <= since_s:
                return False
            done.pauses_s[done.fault.target] = judged_s - since_s
        else:
            hit = {"broker": STREAMS, "worker": self._on_workers}.get(machine, (done.fault.target,))
            pauses = {name: self._watch.pause_s(name, since_s) for name in hit}
            if any(pause is None for pause in pauses.values()):
                return False
            done.pauses_s |= {name: pause for name, pause in pauses.items() if pause is not None}
        slowest = max(done.pauses_s.values())
        self._say(f"         {done.fault}, {self._clock_s() - done.at_s:.0f} s ago: progress after {slowest:.1f} s")
        return True

    def _come_to_rest(self) -> None:
        """Heal everything, let the streams read to the end, stop them by order, audit each from the beginning."""
        self._until(lambda: not self._away and not self._orders, 3 * _IN_SYNC_S, "the machines, and drivers to stop")
        self._desk.close_the_books()
        self.found.sent = len(self._desk.sent)
        self._say(f"all machines are back; the producer has written {self.found.sent:,} records; reading to the end")
        self._until(self._is_drained, _DRAINED_S, "the streams to read to the end")
        self._until(lambda: all(s.is_alone for s in self._streams.values()), _STOPPED_S * 2, "replaced drivers to end")
        self._until(lambda: self._audits.is_idle, _AUDITED_S, "the audits that had begun")
        for stream in self._streams.values():
            stream.finish(_STOPPED_S)
            self.found.differences += stream.faults
            self.found.launches[stream.stream] = stream.launches
        self._truths = self._pool.submit(self._interpreted)
        self._say("all streams have stopped; auditing each from the beginning of the log")
        self._audits.whole = True
        self._audits.ask(STREAMS)
        self._until(lambda: self._audits.is_idle, _AUDITED_S, "the last audits", tend=self._audits.tend)

    def _reckon(self) -> None:
        """Hold what is left against the interpreter; the Spark cluster is not needed any more."""
        self._spark.stop()
        found, sent = self.found, self._desk.sent
        found.differences += self._desk.faults
        found.differences += log_differences(self.connection, sent)
        for truth in self._truths.result():
            topology = truth.topology
            differing, compared = differences(truth, self.connection, self._settings.data)
            found.differences += differing
            found.compared |= {f"{topology.name}: {what}": rows for what, rows in compared.items()}
            self._say(
                f"{topology.name} against the interpreter: {sum(compared.values()):,} rows compared, "
                f"{len(differing)} differences"
            )

    def _interpreted(self) -> list[Interpreted]:
        """The truth about each topology; some minutes, while the last audits run. Given up when the run is over."""
        now_ms = time.time_ns() // 1_000_000

        def sent() -> Iterator[Sent]:
            return takewhile(lambda _: not self._over.is_set(), self._desk.sent)

        return [Interpreted(topology, sent(), now_ms) for topology in TOPOLOGIES]

    def _is_drained(self) -> bool:
        """Whether every stream has committed all that its topics hold; asked every two seconds."""
        if time.monotonic() < self._next_look_s:
            return False
        self._next_look_s = time.monotonic() + _LOOK_S
        try:
            topics = {one.name: [source.topic.name for source in one.sources] for one in TOPOLOGIES}
            return not any(lag.records for lag in lags_of(self.connection, topics).values())
        except RecountError:
            return False

    def _until(
        self, holds: Callable[[], bool], limit_s: float, what: str, *, tend: Callable[[], None] | None = None
    ) -> None:
        deadline = time.monotonic() + limit_s
        while not holds():
            if time.monotonic() > deadline:
                raise Transient(f"waited in vain for {what}", given=f"{limit_s:.0f} s", remedy=f"see {self.home.logs}")
            (tend or self._tend)()
            time.sleep(_TICK_S)

    def _driver_ended(self, ended: Ended) -> None:
        self.found.ended.append((self._clock_s(), ended))
        self._say(f"         a driver of {ended.stream} ended by itself with {ended.code}: {ended.why}")

    def _audited(self, audit: Audit) -> None:
        self.found.audits.append(audit)
        self._audits_done[audit.stream] = time.monotonic()
        self._say(str(audit))
        if audit.outcome != "match" or audit.differences:
            self.found.differences.append(str(audit))

    def _audit_killed(self, fault: Fault) -> None:
        self._did(fault)

    def _say(self, what: str) -> None:
        self._tell(f"{self._clock_s():7.1f} s  {what}")

    def _clock_s(self) -> float:
        return time.monotonic() - self._begun_s


def _patiently(start: Callable[[], None]) -> None:
    """``start`` what has a minute to come up; on a busy machine that can take more."""
    for _ in range(2):
        try:
            return start()
        except Transient:
            continue
    return start()
