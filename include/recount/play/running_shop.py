"""The shop on a profile that runs: its topics, its streams in Airflow, and what their drivers say."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self

import httpx

from recount.core.errors import Terminal, Transient
from recount.core.registry import Declarations, declared
from recount.core.settings import Settings
from recount.kafka.connection import Connection
from recount.kafka.declared import all_topics
from recount.kafka.lags import LagWatch, lags_of
from recount.kafka.status import StatusBoard, StreamStatus
from recount.kafka.topics import apply, plan
from recount.local.airflow_api import AirflowApi
from recount.local.dag_runs import DagRuns
from recount.local.home import Home
from recount.local.paused_dags import nights_of
from recount.local.running import Running
from recount.play.shop_kinds import SHARES

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
        """The stream of which ``recount play`` shows an audit before the first night; None where none is audited."""
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
