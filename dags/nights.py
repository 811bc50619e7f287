"""One DAG per group of streams: every night one Spark application audits all of them, and each has a task group.

A stream whose DAG `audit__STREAM` is paused is left out, and so is one that has never run. By hand, `through` = now
judges everything there is; the DAG of a stream audits it alone.
"""

import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, AsyncCallback, DeadlineAlert, DeadlineReference, TaskGroup

from recount.airflow.audit_tasks import audit_params, follow
from recount.airflow.audits import PanelsOperator
from recount.airflow.naming import night_dag
from recount.airflow.nights import LEFT_OUT, GroupAuditOperator
from recount.airflow.notices import notifiers, tell_of_deadline
from recount.airflow.schedules import DEADLINE, audit_pool, nightly
from recount.airflow.verdicts import VerdictOperator
from recount.core.registry import DEFAULT_MODULES, declared
from recount.core.topology import Topology

JOB = Path(__file__).parents[1] / "spark_jobs" / "audit.py"

for group in declared(os.environ.get("RECOUNT_TOPOLOGIES", DEFAULT_MODULES)).groups.values():
    streams = [stream.name for stream in group.streams if isinstance(stream, Topology)]
    if not streams:
        continue
    with DAG(
        dag_id=night_dag(group.name),
        dag_display_name=f"{group.name}: night",
        description=f"Proves the outputs of the group {group.name} from the raw log",
        schedule=nightly(group.name),
        catchup=False,
        max_active_runs=1,
        default_args={"owner": group.name, "on_failure_callback": notifiers()},
        deadline=DeadlineAlert(
            reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=DEADLINE, callback=AsyncCallback(tell_of_deadline)
        ),
        tags=["recount", "night", f"group:{group.name}"],
        params=audit_params(),
        doc_md=__doc__,
    ):
        audit = GroupAuditOperator(
            task_id="audit",
            group=group.name,
            streams=streams,
            application=JOB,
            retries=2,
            retry_delay=timedelta(seconds=30),
            pool=audit_pool(),
        )
        found = "{{ ti.xcom_pull(task_ids='audit', key='%s') }}"
        for stream in streams:
            with TaskGroup(stream):
                verdict = VerdictOperator(
                    task_id="verdict",
                    stream=stream,
                    audit=found % stream,
                    left_out=found % (LEFT_OUT + stream),
                    trigger_rule="all_done",
                )
                follow(verdict)
            audit >> verdict
        audit >> PanelsOperator(task_id="panels", streams=streams, trigger_rule="all_done")
