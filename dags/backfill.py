"""One DAG per topology: corrects the windows that late records would change, after a human has approved it.

Started by the asset event of an audit, or by hand. Whichever audit started it, it takes the open misses of all audits,
so that none is lost while an approval waits.
"""

import os
from datetime import timedelta
from pathlib import Path

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, Param, task

from recount.airflow.backfills import BackfillOperator
from recount.airflow.naming import audit_dag, backfill_dag, domain_of, grace_misses, labels
from recount.airflow.notices import PersonAwaited, notifiers
from recount.core.registry import DEFAULT_MODULES, declared

JOB = Path(__file__).parents[1] / "spark_jobs" / "backfill.py"
RETRIES = {"retries": 2, "retry_delay": timedelta(seconds=30)}
DECLARATIONS = declared(os.environ.get("RECOUNT_TOPOLOGIES", DEFAULT_MODULES))

for name in DECLARATIONS.topologies:
    with DAG(
        dag_id=backfill_dag(name),
        description=f"Corrects what late records change in {name}",
        schedule=[grace_misses(name)],
        catchup=False,
        max_active_runs=1,
        default_args={"owner": domain_of(DECLARATIONS, name), "on_failure_callback": notifiers()},
        **labels(DECLARATIONS, name, "backfill"),
        params={
            "audit": Param("", type="string", description="Only what this audit found; empty: all that is open"),
            "approve": Param("human", type="string", enum=["human", "automatic"], description="Who approves"),
            "dry_run": Param(False, type="boolean", description="Only show what would change"),
        },
        doc_md=__doc__,
    ):

        @task.branch
        def how(params, ti) -> list[str]:  # type: ignore[no-untyped-def]
            """To the approval, straight to the repair, or to nothing: after a dry run, and where nothing is to do."""
            to_do = sum(ti.xcom_pull(task_ids="dry_run", key=key) for key in ("changes", "unpublished"))
            if params["dry_run"] or not to_do:
                return []
            return ["approval"] if params["approve"] == "human" else ["repair"]

        audit = "{{ params.audit }}"
        dry_run = BackfillOperator(
            task_id="dry_run", stream=name, audit=audit, application=JOB, only_show=True, **RETRIES
        )
        approval = ApprovalOperator(
            task_id="approval",
            subject=f"Publish corrections of {name}?",
            body=(
                "{{ ti.xcom_pull(task_ids='dry_run', key='changes') }} results would change, as of audit "
                "{{ ti.xcom_pull(task_ids='dry_run', key='as_of') }}: the log of the task dry_run shows every change. "
                "The repair takes all misses that are open when it runs, those of later audits too."
            ),
            notifiers=[PersonAwaited()],
            **RETRIES,
        )
        repair = BackfillOperator(
            task_id="repair",
            stream=name,
            audit=audit,
            application=JOB,
            trigger_rule="none_failed_min_one_success",
            **RETRIES,
        )
        audit_again = TriggerDagRunOperator(
            task_id="audit_again",
            trigger_dag_id=audit_dag(name),
            conf={"through": "now", "announce": False},
            wait_for_completion=True,
            deferrable=True,
            poke_interval=5,
        )
        branch = how()
        dry_run >> branch >> [approval, repair]
        approval >> repair >> audit_again
