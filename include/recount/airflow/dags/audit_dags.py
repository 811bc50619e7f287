"""One DAG per topology: is each output there exactly once?

Every night, unless the stream is in a group: then `night__GROUP` audits it, and leaves it out while this DAG is
paused. By hand at any time: `through` = now judges everything there is; a time (ISO 8601) re-audits as of then.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from airflow.sdk import DAG

from recount.airflow.audit_tasks import audit_params, follow
from recount.airflow.audits import AuditOperator, PanelsOperator
from recount.airflow.dags.dag_plan import DagPlan
from recount.airflow.naming import audit_dag, labels
from recount.airflow.schedules import nightly


def audit_dags(plan: DagPlan) -> Iterator[DAG]:
    """The DAGs ``audit__NAME``."""
    for name in plan.declarations.audited:
        if plan.needs(audit_dag(name)):
            yield _judged(plan, name)


def _judged(plan: DagPlan, name: str) -> DAG:
    is_alone = plan.declarations.group_of(name) is None
    settings = plan.settings_of(name)
    with DAG(
        dag_id=audit_dag(name),
        description=f"Proves the outputs of {name} from the raw log",
        schedule=nightly(name, settings.audit_schedule) if is_alone else None,
        catchup=False,
        is_paused_upon_creation=None if is_alone else False,
        max_active_runs=1,
        default_args=plan.default_args(name),
        deadline=plan.deadline(name),
        **labels(plan.declarations, name, "audit"),
        params=audit_params(),
        doc_md=__doc__,
    ) as dag:
        audit = AuditOperator(
            task_id="audit",
            stream=name,
            application=plan.job("audit"),
            spark_resources=settings.audit,
            retries=2,
            retry_delay=timedelta(seconds=30),
            pool=plan.pool(name),
        )
        follow(audit)
        audit >> PanelsOperator(task_id="panels", streams=[name], trigger_rule="all_done")
    return dag
