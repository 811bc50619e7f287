"""What the pages ask of Airflow: which DAGs are paused, when they run next, and to start one for a user who may."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from airflow.api.common.trigger_dag import trigger_dag
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models import DagModel
from airflow.sdk.exceptions import AirflowException
from airflow.utils.session import create_session
from airflow.utils.types import DagRunTriggeredByType
from sqlalchemy import select

from recount.core.errors import Terminal


@dataclass(frozen=True, kw_only=True)
class DagState:
    """A DAG that Airflow knows; ``next_ms`` None: nothing is scheduled."""

    paused: bool
    next_ms: int | None


class Runs(Protocol):
    """What ``AirflowRuns`` is, for tests without Airflow's database."""

    def states(self, dags: Collection[str]) -> Mapping[str, DagState]:
        """Of those of ``dags`` that Airflow knows."""
        ...

    def may_start(self, dag: str, user: BaseUser) -> bool:
        """Whether ``user`` may start a run of ``dag``."""
        ...

    def start(self, dag: str, conf: Mapping[str, Any], user: BaseUser) -> None:
        """Start a run of ``dag`` in the name of ``user``, who may; raises ``Terminal`` where Airflow refuses."""
        ...


class AirflowRuns:
    """By Airflow's own database and auth manager."""

    def states(self, dags: Collection[str]) -> Mapping[str, DagState]:
        with create_session() as session:
            asked = select(DagModel.dag_id, DagModel.is_paused, DagModel.next_dagrun_create_after)
            rows = session.execute(asked.where(DagModel.dag_id.in_(dags), ~DagModel.is_stale)).all()
        return {
            dag: DagState(paused=paused, next_ms=None if after is None else int(after.timestamp() * 1_000))
            for dag, paused, after in rows
        }

    def may_start(self, dag: str, user: BaseUser) -> bool:
        return get_auth_manager().is_authorized_dag(
            method="POST",
            access_entity=DagAccessEntity.RUN,
            details=DagDetails(id=dag, team_name=DagModel.get_team_name(dag)),
            user=user,
        )

    def start(self, dag: str, conf: Mapping[str, Any], user: BaseUser) -> None:
        try:
            trigger_dag(
                dag_id=dag,
                triggered_by=DagRunTriggeredByType.UI,
                triggering_user_name=user.get_name(),
                conf=dict(conf),
            )
        except (AirflowException, ValueError) as error:
            raise Terminal(
                f"Airflow has not started {dag}",
                given=str(error),
                expected="a DAG that Airflow has parsed, and that takes runs by hand",
                remedy="see the DAG in Airflow",
            ) from error
