"""One driver for the streams of a group: each runs in a thread of its own and fails, stops and starts alone.

The host also publishes why a stream was not started.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Protocol

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from recount.engine.driver.runner import RunOptions, Shared, StreamRunner, is_final
from recount.engine.driver.stream_query import Turns
from recount.engine.driver.stream_reports import DriverMetrics, is_driven, with_memory
from recount.engine.exchange.work import Observer, Work, unobserved
from recount.engine.source.unread_records import UnreadRecords, producer_at
from recount.kafka.connection import Connection, Fenced
from recount.kafka.leases import ControlChannel, Lease, StandingOrders
from recount.kafka.status import MOST_CHARACTERS, StreamStatus, last_epoch, status_of, status_of_group
from recount.runtime.errors import RecountError, Transient, says_all
from recount.runtime.log_lines import about, told_of
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms
from recount.tables.decisions import DeclarationLog

_LOG = logging.getLogger(__name__)
_LOOK_EVERY_S = 1.0
_AT_ONCE = 2
"""Batches that are processed at the same time; their tasks share the cores, their operators one Python."""
Answer = Literal["run", "end", "wait", "done"]
MakeWork = Callable[[SparkSession], Work]


def publish_refusal(
    session: SparkSession, settings: Settings, stream: str, error: BaseException, metrics: DriverMetrics
) -> None:
    """Say for a stream that was refused before it took its lease why it does not run: nobody else will.

    Where another driver runs it, nothing is said: the lease is that one's.
    """
    connection = Connection.of(settings)
    try:
        if isinstance(error, Fenced) or is_driven(status_of(connection, stream)):
            return
        with ExitStack() as held:
            lease = Lease.acquire(connection, stream)
            held.callback(lease.release)
            status = StreamStatus.first(stream, lease.epoch, session.sparkContext.applicationId)
            said = str(error)[:MOST_CHARACTERS]
            version = DeclarationLog(settings.data, stream).version()
            failed = replace(status, state="failed", error=said, final=is_final(error), stream_version=version)
            lease.publish(failed)
            metrics.told(failed)
    except RecountError as unheard:
        _LOG.warning("the failure could not be published: %s", unheard)


class Hosted(Protocol):
    """A driver that runs one stream, once."""

    has_spoken: bool

    def run(self) -> None:
        """Returns when the stream has stopped, raises when it failed."""


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """``on_order``: a stream is run when an order to run it comes, and the driver ends when for ``idle_s`` seconds none
    runs. Otherwise every stream is run once, unless an order to stop it stands, and the driver ends with the last.
    """

    on_order: bool = False
    idle_s: float = 20.0


@dataclass(eq=False)
class GroupHost:
    """Hosts the streams ``works`` of ``group`` in the Spark application of ``session``.

    The driver holds a lease of its own, by which there is one for a group; who loses it stops all streams. A stream
    that ended, well or not, is run again by the next order. A stream at work for which a new lease is ordered, because
    it seems to stand still, is stopped first; while it does not stop, its order waits.
    """

    session: SparkSession
    settings: Settings
    group: str
    works: Mapping[str, MakeWork]
    options: RunOptions
    host_options: HostOptions
    observer: Observer = unobserved
    metrics: DriverMetrics = field(default_factory=DriverMetrics)

    def __post_init__(self) -> None:
        self._name = status_of_group(self.group)
        self._connection = Connection.of(self.settings)
        self._sessions: dict[str, SparkSession] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._runners: dict[str, Hosted] = {}
        self._done: dict[str, str] = {}
        self._stopping = threading.Event()
        self._given_up: set[str] = set()
        self.failures: dict[str, str] = {}

    def stop(self) -> None:
        """Stop every stream after its batch; ``run`` returns when all have ended. May be called by a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Host until there is nothing more to run; the last status of the group says ``stopped`` or ``failed``."""
        with ExitStack() as held:
            lease = Lease.acquire(self._connection, self._name)
            held.callback(lease.release)
            orders = held.enter_context(closing(StandingOrders(self._connection, max_age_s=0.5)))
            name = partial(producer_at, self.session, self._connection.of_spark)
            unread = UnreadRecords(self._connection, name, self.options.heartbeat_s)
            held.enter_context(unread.asking())
            turns = Turns(_AT_ONCE)
            shared = Shared(orders=orders, is_stopping=self._is_stopping, unread=unread, turn=turns)
            control = ControlChannel(self._connection, self._name, lease.epoch, shared=orders)
            application = self.session.sparkContext.applicationId
            status = replace(StreamStatus.first(self._name, lease.epoch, application), state="running")
            try:
                self._told(lease, status)
                if not self.host_options.on_order:
                    self._run_all(shared)
                self._watch(lease, control, shared, status)
                self._told(lease, replace(status, state="stopped"))
            except BaseException as error:
                self._stopping.set()
                self._await_streams()
                _LOG.error("the driver of group %s failed", self.group, exc_info=error)
                failed = replace(status, state="failed", error=str(error)[:MOST_CHARACTERS], final=is_final(error))
                try:
                    self._told(lease, failed)
                except RecountError as unheard:
                    _LOG.warning("the failure could not be published: %s", unheard)
                raise

    def _watch(self, lease: Lease, control: ControlChannel, shared: Shared, status: StreamStatus) -> None:
        heard_s = idle_since_s = time.monotonic()
        while True:
            now_s = time.monotonic()
            if self._stopping.wait(_LOOK_EVERY_S) or control.stop_requested():
                _LOG.info("stop requested")
                self._told(lease, replace(status, state="stopping"))
                self._stopping.set()
                self._await_streams()
                return
            if self.session.sparkContext._jsc.sc().isStopped():
                raise Transient(f"the Spark application of group {self.group} has ended")
            self._take_orders(shared)
            if self._running():
                idle_since_s = now_s
            elif not self.host_options.on_order:
                return
            elif now_s - idle_since_s > self.host_options.idle_s:
                # published before the last read of the orders: a client that gives an order later has seen it
                self._told(lease, replace(status, state="stopping"))
                shared.orders.read_anew()
                self._take_orders(shared)
                if not self._running():
                    _LOG.info("no stream is to run")
                    return
                idle_since_s, heard_s = now_s, 0.0
            if now_s - heard_s >= self.options.heartbeat_s:
                self._told(lease, status)
                heard_s = now_s

    def _run_all(self, shared: Shared) -> None:
        for stream in self.works:
            order = shared.orders.stop_of(stream)
            if order is not None and order >= last_epoch(self._connection, stream):
                _LOG.info("stream %s is stopped by order", stream)
                continue
            self._begin(stream, shared)

    def _take_orders(self, shared: Shared) -> None:
        """Run what is ordered and not yet done; brokers that are away are asked again later."""
        if not self.host_options.on_order:
            return
        try:
            for stream in self.works:
                order = shared.orders.run_of(stream)
                if order is None or self._done.get(stream) == order.order or stream in self._given_up:
                    continue
                answer = answer_to(
                    order.lease_epoch,
                    last_epoch(self._connection, stream),
                    is_at_work=self._is_at_work(stream),
                    has_spoken=stream in self._runners and self._runners[stream].has_spoken,
                )
                if answer == "run":
                    self._begin(stream, shared)
                elif answer == "end":
                    _LOG.warning("stream %s is to be started again: stopping it first", stream)
                    self._given_up.add(stream)
                if answer in ("run", "done"):
                    self._done[stream] = order.order
        except Transient as error:
            _LOG.warning("no word from the control topic, asking again: %s", error)

    def _begin(self, stream: str, shared: Shared) -> None:
        _LOG.info("starting stream %s", stream)
        self.failures.pop(stream, None)
        self._runners.pop(stream, None)
        hosted = told_of(self._host, stream=stream)
        thread = InheritableThread(target=hosted, args=(stream, shared), daemon=True, name=stream)
        self._threads[stream] = thread
        thread.start()

    def _is_stopping(self, stream: str) -> bool:
        return self._stopping.is_set() or stream in self._given_up

    def _host(self, stream: str, shared: Shared) -> None:
        """The thread of a stream: nothing that goes wrong in it leaves it."""
        runner: Hosted | None = None
        try:
            session = self._session_of(stream)
            work = self.works[stream](session)
            try:
                runner = self._runners[stream] = self._runner(session, work, shared)
                runner.run()
            finally:
                self._given_up.discard(stream)
                work.settle()
            _LOG.info("stopped")
        except BaseException as error:
            self.failures[stream] = str(error)
            if runner is None or not runner.has_spoken:
                _LOG.error("stream %s was refused: %s", stream, error, exc_info=not says_all(error))
                publish_refusal(self.session, self.settings, stream, error, self.metrics)

    def _runner(self, session: SparkSession, work: Work, shared: Shared) -> Hosted:
        return StreamRunner(session, self.settings, work, self.options, self.observer, shared, self.metrics)

    def _session_of(self, stream: str) -> SparkSession:
        """The stream's own session, with settings and a list of queries of its own."""
        if stream not in self._sessions:
            self._sessions[stream] = self.session.newSession()
        return self._sessions[stream]

    def _is_at_work(self, stream: str) -> bool:
        return stream in self._threads and self._threads[stream].is_alive()

    def _running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads.values())

    def _await_streams(self) -> None:
        for stream, thread in self._threads.items():
            with about(stream=stream):
                thread.join()

    def _told(self, lease: Lease, status: StreamStatus) -> None:
        lease.publish(replace(with_memory(status, self.options.memory()), heartbeat_ms=clock_ms()))


def answer_to(after_epoch: int, last_epoch: int, *, is_at_work: bool, has_spoken: bool) -> Answer:
    """The answer of a driver about an order to run a stream with a lease above ``after_epoch``.

    ``last_epoch`` is that of the stream's last status. A stream that is at work and has not yet published one may be
    what the order wants: that is known once it has.
    """
    if last_epoch > after_epoch:
        return "done"
    if not is_at_work:
        return "run"
    return "end" if has_spoken else "wait"
