"""The buttons of a stream's page: which DAG each starts for a user who may, and the token that proves an order."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from airflow.api.common.trigger_dag import trigger_dag
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.auth.tokens import get_signing_key
from airflow.models import DagModel
from airflow.sdk.exceptions import AirflowException
from airflow.utils.session import create_session
from airflow.utils.types import DagRunTriggeredByType
from itsdangerous import BadSignature, URLSafeTimedSerializer
from sqlalchemy import select

from recount.airflow.links import CONTROL, audit_dag, backfill_dag, stream_dag
from recount.declare.registry import Stream, is_audited
from recount.runtime.errors import Terminal

Order = Literal["start", "stop", "audit", "backfill"]
_TOKEN_AGE_S = 12 * 3_600
_LABELS: Mapping[Order, tuple[str, str]] = {
    "start": ("Start", "withdraws an order to stop"),
    "stop": ("Stop", "after the batch at work; stands until it is started again"),
    "audit": ("Audit", "judges all there is now"),
    "backfill": ("Backfill", "shows what would change, then asks for approval"),
}


@dataclass(frozen=True, kw_only=True)
class DagState:
    """A DAG that Airflow knows; ``next_ms`` None: nothing is scheduled."""

    paused: bool
    next_ms: int | None


class AirflowRuns:
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
        """Start a run of ``dag`` in the name of ``user``, who may; raises ``Terminal`` where Airflow refuses."""
        try:
            trigger_dag(
                dag_id=dag, triggered_by=DagRunTriggeredByType.UI, triggering_user_name=user.get_name(), conf=dict(conf)
            )
        except (AirflowException, ValueError) as error:
            raise Terminal.of("run-not-started", given=str(error), dag=dag) from error


@dataclass(frozen=True, kw_only=True)
class Button:
    """``objection`` says why it cannot be pressed."""

    order: Order
    label: str
    does: str
    dag: str
    conf: Mapping[str, object]
    objection: str | None = None


def dags_of(stream: Stream) -> list[str]:
    return [CONTROL, stream_dag(stream.name), audit_dag(stream.name), backfill_dag(stream.name)]


def buttons(stream: Stream, states: Mapping[str, DagState], runs: AirflowRuns, user: BaseUser) -> Sequence[Button]:
    """Return the buttons of ``stream``; one that is not audited is started and stopped only."""
    orders = [order for order in get_args(Order) if is_audited(stream) or order in ("start", "stop")]
    return [_button(order, stream.name, states, runs, user) for order in orders]


def token_for(user: BaseUser) -> str:
    """Return the token that a form of ``user`` sends back: no page of another site can know it."""
    return _signer().dumps(user.get_id())


def is_token_of(user: BaseUser, token: object) -> bool:
    """Whether ``token`` was given to ``user`` during the last twelve hours."""
    try:
        return isinstance(token, str) and bool(_signer().loads(token, max_age=_TOKEN_AGE_S) == user.get_id())
    except BadSignature:
        return False


def _signer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(get_signing_key("api", "secret_key"), salt="recount orders")


def _button(order: Order, stream: str, states: Mapping[str, DagState], runs: AirflowRuns, user: BaseUser) -> Button:
    dag = {"audit": audit_dag(stream), "backfill": backfill_dag(stream)}.get(order, CONTROL)
    conf = {"stream": stream, "order": order} if dag == CONTROL else {}
    needed = [dag, stream_dag(stream)] if order == "start" else [dag]
    label, does = _LABELS[order]
    objection = next((f"{one} is not known to Airflow" for one in needed if one not in states), None)
    objection = objection or next((f"{one} is paused in Airflow" for one in needed if states[one].paused), None)
    if objection is None and not runs.may_start(dag, user):
        objection = f"you may not start runs of {dag}"
    return Button(order=order, label=label, does=does, dag=dag, conf=conf, objection=objection)
