"""One DAG per group of streams: every night one Spark application audits all of them, and each has a task group.

A stream whose DAG `audit__STREAM` is paused is left out, and so is one that has never run. By hand, `through` = now
judges everything there is; the DAG of a stream audits it alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from airflow.sdk import DAG, TaskGroup

from recount.airflow.audit_tasks import audit_params, follow
from recount.airflow.audits import PanelsOperator
from recount.airflow.dags.dag_plan import DagPlan
from recount.airflow.naming import night_dag
from recount.airflow.nights import LEFT_OUT, REFUSED, GroupAuditOperator
from recount.airflow.schedules import nightly
from recount.airflow.verdicts import VerdictOperator
from recount.core.registry import is_audited


def night_dags(plan: DagPlan) -> Iterator[DAG]:
    """The DAGs ``night__GROUP``."""
    for group in plan.declarations.groups.values():
        streams = [stream.name for stream in group.streams if is_audited(stream)]
        if streams and plan.needs(night_dag(group.name)):
            yield _night(plan, group.name, streams)


def _night(plan: DagPlan, group: str, streams: Sequence[str]) -> DAG:
    settings = plan.settings_of(group)
    with DAG(
        dag_id=night_dag(group),
        dag_display_name=f"{group}: night",
        description=f"Proves the outputs of the group {group} from the raw log",
        schedule=nightly(group, settings.audit_schedule),
        catchup=False,
        max_active_runs=1,
        default_args=plan.default_args(group, owner=group),
        deadline=plan.deadline(group),
        tags=["recount", "night", f"group:{group}"],
        params=audit_params(),
        doc_md=__doc__,
    ) as dag:
        audit = GroupAuditOperator(
            task_id="audit",
            group=group,
            streams=streams,
            application=plan.job("audit"),
            spark_resources=settings.audit,
            retries=2,
            retry_delay=timedelta(seconds=30),
            pool=plan.pool(group),
        )
        found = "{{ ti.xcom_pull(task_ids='audit', key='%s') }}"
        for stream in streams:
            with TaskGroup(stream):
                verdict = VerdictOperator(
                    task_id="verdict",
                    stream=stream,
                    audit=found % stream,
                    left_out=found % (LEFT_OUT + stream),
                    refused=found % (REFUSED + stream),
                    trigger_rule="all_done",
                )
                follow(verdict)
            audit >> verdict
        audit >> PanelsOperator(task_id="panels", streams=streams, trigger_rule="all_done")
    return dag
