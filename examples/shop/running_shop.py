"""The shop on a profile that runs: its topics, its streams in Airflow, and what their drivers say.

A thread that sends a flow's records when they are due.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self

import httpx
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from examples.shop.shop_records import SHARES, Planted

from recount.declare.registry import Declarations, declared
from recount.kafka.connection import Connection, failure
from recount.kafka.lags import LagWatch, lags_of
from recount.kafka.status import StatusBoard, StreamStatus
from recount.kafka.topic_drift import all_topics
from recount.kafka.topics_on_cluster import apply, plan
from recount.profile.dag_runs import AirflowApi, DagRuns, nights_of
from recount.profile.home import Home, Running
from recount.runtime.errors import RecountError, Terminal, Transient
from recount.runtime.settings import Settings

_SHOWN = "revenue-by-region"

_REMEDY = "start it: make up (or recount up), then recount play"


@dataclass(frozen=True, kw_only=True)
class RunningShop:
    """The declarations of a profile, its broker and its Airflow."""

    declarations: Declarations
    connection: Connection
    airflow: AirflowApi

    @classmethod
    def in_home(cls, home: Home) -> Self:
        """Of the profile that runs in ``home``; ``Terminal`` where none does, or one without Airflow or the shop."""
        running = Running.read(home)
        if running is None:
            raise Terminal(
                "no profile runs to play in", given=str(home.path), expected="a profile that runs", remedy=_REMEDY
            )
        if running.airflow_url is None:
            raise Terminal(
                "the profile that runs has no Airflow, which runs the streams",
                given="recount up --no-airflow",
                expected="a profile with Airflow",
                remedy="recount down, then recount up and recount play",
            )
        settings = Settings.from_environment(running.settings)
        declarations = declared(settings.topologies)
        if not declarations.topics.keys() & SHARES.keys():
            raise Terminal(
                "nothing to play: the declared streams read no topic of the shop",
                given=f"RECOUNT_TOPOLOGIES={settings.topologies}",
                expected=f"one that reads {', '.join(SHARES)}",
                remedy="recount down, unset RECOUNT_TOPOLOGIES, recount up",
            )
        airflow = AirflowApi(running.airflow_url, home.airflow_passwords)
        return cls(declarations=declarations, connection=Connection.of(settings), airflow=airflow)

    @cached_property
    def partitions(self) -> dict[str, int]:
        """Of each of the shop's source topics that is declared."""
        topics = self.declarations.topics
        return {name: topics[name].partitions for name in SHARES if name in topics}

    def create_topics(self) -> None:
        """Those that are missing."""
        admin = self.connection.admin()
        apply(admin, plan(admin, all_topics(self.declarations, self.connection.own), "embedded"))

    def switch_on(self) -> None:
        """Let Airflow run every stream and audit it at night; ``Transient`` where it does not answer."""
        try:
            DagRuns(self.airflow).unpause_streams(list(self.declarations.streams))
            DagRuns(self.airflow).unpause_all(nights_of(self.declarations))
        except httpx.TransportError as error:
            raise self._no_answer(error) from error

    @property
    def audited_first(self) -> str | None:
        """The stream of which ``make play`` shows an audit before the first night; None where none is audited."""
        return _SHOWN if _SHOWN in self.declarations.audited else next(iter(sorted(self.declarations.audited)), None)

    def audit_now(self, stream: str) -> None:
        """Start the audit of ``stream`` in Airflow, of everything up to now; ``Transient`` where it does not answer."""
        try:
            DagRuns(self.airflow).trigger(f"audit__{stream}", through="now")
        except httpx.HTTPError as error:
            raise self._no_answer(error) from error

    def _no_answer(self, error: httpx.HTTPError) -> Transient:
        return Transient(
            "Airflow does not answer",
            given=f"{self.airflow.url}: {error}",
            expected="an Airflow that is up",
            remedy="see what runs: recount status",
        )

    @cached_property
    def _lags(self) -> LagWatch:
        watch = LagWatch(partial(lags_of, self.connection))
        for name, topics in self.declarations.read_topics.items():
            watch.follow(name, topics)
        return watch

    def statuses(self) -> dict[str, StreamStatus]:
        """The last word of every driver, with how far its stream is behind now."""
        with closing(StatusBoard(self.connection)) as board:
            statuses, lags = board.latest(), self._lags.now()
        return {
            name: replace(status, lag=lags[name].records, lag_at_ms=lags[name].at_ms) if name in lags else status
            for name, status in statuses.items()
        }


_SLOT_S = 0.05

"""Records of so long go out at once: a thread cannot be woken for each of thousands a second."""

_FLUSH_S = 60.0


class ShopSource(threading.Thread):
    """Sends the records of ``flow`` until the end of the block. A context manager: started on entry, ended on exit.

    ``sent`` counts records, ``faults`` those that were planted late, bad or as a tombstone.
    """

    def __init__(self, producer: Producer, flow: Iterable[Planted]) -> None:
        super().__init__(name="shop source", daemon=True)
        self._producer, self._flow = producer, flow
        self._over = threading.Event()
        self._error: RecountError | None = None
        self.sent = 0
        self.faults: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def require_well(self) -> None:
        """Raise what Kafka said of the first record that it did not take."""
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        """Send what is due until the block ends or Kafka refuses a record; then wait for what is on its way."""
        begun_s = time.monotonic()
        for planted in self._flow:
            early_s = begun_s + planted.due_ms / 1_000 - time.monotonic()
            if early_s > 0:
                self._producer.poll(0)
                self._over.wait(max(early_s, _SLOT_S))
            if self._over.is_set() or self._error is not None:
                break
            self._send(planted)
        if self._producer.flush(_FLUSH_S) and self._error is None:
            self._error = Transient(
                "Kafka does not take the records of the shop",
                given=f"no answer within {_FLUSH_S:.0f} s",
                expected="brokers that are up",
                remedy="see what runs: recount status",
            )

    def _send(self, planted: Planted) -> None:
        record = planted.arrival
        while not self._over.is_set():
            try:
                self._producer.produce(
                    record.topic,
                    key=record.key,
                    value=record.value,
                    partition=record.partition,
                    timestamp=record.timestamp_ms,
                    on_delivery=self._told,
                )
            except BufferError:
                self._producer.poll(_SLOT_S)
                continue
            except KafkaException as error:
                self._error = failure("sending the records of the shop", error)
                return
            self.sent += 1
            self.faults.update([planted.fault] if planted.fault else [])
            return

    def _told(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and self._error is None:
            self._error = failure("sending the records of the shop", error)
