"""One DAG per topology: corrects the windows that late records would change, after a human has approved it.

Started by the asset event of an audit, or by hand. Whichever audit started it, it takes the open misses of all audits,
so that none is lost while an approval waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, Param, task

from recount.airflow.backfills import BackfillOperator
from recount.airflow.dags.dag_plan import DagPlan
from recount.airflow.naming import audit_dag, backfill_dag, grace_misses, labels
from recount.airflow.notices import PersonAwaited

_RETRIES: dict[str, Any] = {"retries": 2, "retry_delay": timedelta(seconds=30)}
_AUDIT = "{{ params.audit }}"


def backfill_dags(plan: DagPlan) -> Iterator[DAG]:
    """The DAGs ``backfill__NAME``."""
    for name in plan.declarations.audited:
        if plan.needs(backfill_dag(name)):
            yield _corrected(plan, name)


def how(params: Any, ti: Any) -> list[str]:
    """To the approval, straight to the repair, or to nothing: after a dry run, and where nothing is to do."""
    to_do = sum(ti.xcom_pull(task_ids="dry_run", key=key) for key in ("changes", "unpublished"))
    if params["dry_run"] or not to_do:
        return []
    return ["approval"] if params["approve"] == "human" else ["repair"]


def _corrected(plan: DagPlan, name: str) -> DAG:
    settings = plan.settings_of(name)
    with DAG(
        dag_id=backfill_dag(name),
        description=f"Corrects what late records change in {name}",
        schedule=[grace_misses(name)],
        catchup=False,
        max_active_runs=1,
        default_args=plan.default_args(name),
        **labels(plan.declarations, name, "backfill"),
        params={
            "audit": Param("", type="string", description="Only what this audit found; empty: all that is open"),
            "approve": Param(settings.approve, type="string", enum=["human", "automatic"], description="Who approves"),
            "dry_run": Param(False, type="boolean", description="Only show what would change"),
        },
        doc_md=__doc__,
    ) as dag:
        job, size = plan.job("backfill"), settings.audit
        dry_run = BackfillOperator(
            task_id="dry_run",
            stream=name,
            audit=_AUDIT,
            application=job,
            spark_resources=size,
            only_show=True,
            **_RETRIES,
        )
        approval = _approval(plan, name)
        repair = BackfillOperator(
            task_id="repair",
            stream=name,
            audit=_AUDIT,
            application=job,
            spark_resources=size,
            trigger_rule="none_failed_min_one_success",
            **_RETRIES,
        )
        audit_again = TriggerDagRunOperator(
            task_id="audit_again",
            trigger_dag_id=audit_dag(name),
            conf={"through": "now", "announce": False},
            wait_for_completion=True,
            deferrable=True,
            poke_interval=5,
        )
        branch = cast("Any", task.branch(how))()
        dry_run >> branch >> [approval, repair]
        approval >> repair >> audit_again
    return dag


def _approval(plan: DagPlan, name: str) -> ApprovalOperator:
    return ApprovalOperator(
        task_id="approval",
        subject=f"Publish corrections of {name}?",
        body=(
            "Results that would change: {{ ti.xcom_pull(task_ids='dry_run', key='changes') }}, as of audit "
            "{{ ti.xcom_pull(task_ids='dry_run', key='as_of') }}. The log of the task dry_run shows every change. "
            "The repair takes all misses that are open when it runs, those of later audits too."
        ),
        notifiers=[PersonAwaited(plan.settings_of(name).notifiers)],
        **plan.approvers(name),
        **_RETRIES,
    )
