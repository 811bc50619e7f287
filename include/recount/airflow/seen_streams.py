"""What a page of the plugin shows of the declared streams, gathered from brokers, reports and Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recount.airflow.health import health_of
from recount.airflow.naming import audit_dag, domain_of, night_dag
from recount.airflow.runs_by_hand import DagState
from recount.core.registry import Declarations, Stream, is_audited
from recount.core.settings import Settings
from recount.core.topology import Topology
from recount.web.broker_watch import BrokersSay
from recount.web.issued import certificates
from recount.web.stream_lines import NextAudit, StreamLine

_ALONE = "a driver of its own"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Everything a page is made of, as of ``now_ms``."""

    settings: Settings
    declarations: Declarations
    say: BrokersSay
    dags: Mapping[str, DagState]
    now_ms: int

    def line(self, name: str, most_certificates: int) -> StreamLine:
        """The stream ``name`` with its newest certificates."""
        stream, group = self.declarations.streams[name], self.declarations.group_of(name)
        status = self.say.statuses.get(name)
        return StreamLine(
            name=name,
            is_archive=not isinstance(stream, Topology),
            is_audited=is_audited(stream),
            domain=domain_of(self.declarations, name),
            group=group.name if group else _ALONE,
            heard=self.say.heard,
            status=status,
            health=None if status is None else health_of(status, stream.health, self.now_ms),
            samples=self.say.samples.get(name, ()),
            lag=self.say.lags.get(name),
            certificates=certificates(self.settings.reports, name, most_certificates),
            next_audit=self._next_audit(stream),
        )

    def _next_audit(self, stream: Stream) -> NextAudit | None:
        """By the DAG of the stream's group, which leaves out a stream whose own DAG is paused."""
        dag = nightly_dag(self.declarations, stream.name)
        if dag not in self.dags:
            return None
        paused = next(
            (one for one in (dag, audit_dag(stream.name)) if one in self.dags and self.dags[one].paused), None
        )
        return NextAudit(dag=paused or dag, at_ms=self.dags[dag].next_ms, paused=paused is not None)


def nightly_dag(declarations: Declarations, stream: str) -> str:
    """The DAG that audits ``stream`` every night."""
    group = declarations.group_of(stream)
    return night_dag(group.name) if group else audit_dag(stream)
