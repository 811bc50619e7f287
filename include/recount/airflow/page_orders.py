"""The buttons of a stream's page: which DAG each starts, and the token by which an order is known to come from one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.tokens import get_signing_key
from itsdangerous import BadSignature, URLSafeTimedSerializer

from recount.airflow.naming import CONTROL, audit_dag, backfill_dag, stream_dag
from recount.airflow.runs_by_hand import DagState, Runs
from recount.core.registry import Stream, is_audited

Order = Literal["start", "stop", "audit", "backfill"]
_TOKEN_AGE_S = 12 * 3_600
_LABELS: Mapping[Order, tuple[str, str]] = {
    "start": ("Start", "withdraws an order to stop"),
    "stop": ("Stop", "after the batch at work; stands until it is started again"),
    "audit": ("Audit", "judges all there is now"),
    "backfill": ("Backfill", "shows what would change, then asks for approval"),
}


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
    """The DAGs that the buttons of ``stream`` need."""
    return [CONTROL, stream_dag(stream.name), audit_dag(stream.name), backfill_dag(stream.name)]


def buttons(stream: Stream, states: Mapping[str, DagState], runs: Runs, user: BaseUser) -> Sequence[Button]:
    """Those of ``stream``; one that is not audited is started and stopped only."""
    orders = [order for order in get_args(Order) if is_audited(stream) or order in ("start", "stop")]
    return [_button(order, stream.name, states, runs, user) for order in orders]


def token_for(user: BaseUser) -> str:
    """What a form of ``user`` sends back: no page of another site can know it."""
    return _signer().dumps(user.get_id())


def is_token_of(user: BaseUser, token: object) -> bool:
    """Whether ``token`` was given to ``user`` during the last twelve hours."""
    try:
        return isinstance(token, str) and bool(_signer().loads(token, max_age=_TOKEN_AGE_S) == user.get_id())
    except BadSignature:
        return False


def _signer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(get_signing_key("api", "secret_key"), salt="recount orders")


def _button(order: Order, stream: str, states: Mapping[str, DagState], runs: Runs, user: BaseUser) -> Button:
    dag = {"audit": audit_dag(stream), "backfill": backfill_dag(stream)}.get(order, CONTROL)
    conf = {"stream": stream, "order": order} if dag == CONTROL else {}
    needed = [dag, stream_dag(stream)] if order == "start" else [dag]
    label, does = _LABELS[order]
    objection = next((f"{one} is not known to Airflow" for one in needed if one not in states), None)
    objection = objection or next((f"{one} is paused in Airflow" for one in needed if states[one].paused), None)
    if objection is None and not runs.may_start(dag, user):
        objection = f"you may not start runs of {dag}"
    return Button(order=order, label=label, does=does, dag=dag, conf=conf, objection=objection)
