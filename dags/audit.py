"""One DAG per topology: is each output there exactly once?

Every night, unless the stream is in a group: then `night__GROUP` audits it, and leaves it out while this DAG is
paused. By hand at any time: `through` = now judges everything there is; a time (ISO 8601) re-audits as of then.
"""

import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, AsyncCallback, DeadlineAlert, DeadlineReference

from recount.airflow.audit_tasks import audit_params, follow
from recount.airflow.audits import AuditOperator, PanelsOperator
from recount.airflow.naming import audit_dag, domain_of, labels
from recount.airflow.notices import notifiers, tell_of_deadline
from recount.airflow.schedules import DEADLINE, audit_pool, nightly
from recount.core.registry import DEFAULT_MODULES, declared

JOB = Path(__file__).parents[1] / "spark_jobs" / "audit.py"
DECLARATIONS = declared(os.environ.get("RECOUNT_TOPOLOGIES", DEFAULT_MODULES))

for name in DECLARATIONS.topologies:
    is_alone = DECLARATIONS.group_of(name) is None
    with DAG(
        dag_id=audit_dag(name),
        description=f"Proves the outputs of {name} from the raw log",
        schedule=nightly(name) if is_alone else None,
        catchup=False,
        is_paused_upon_creation=None if is_alone else False,
        max_active_runs=1,
        default_args={"owner": domain_of(DECLARATIONS, name), "on_failure_callback": notifiers()},
        deadline=DeadlineAlert(
            reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=DEADLINE, callback=AsyncCallback(tell_of_deadline)
        ),
        **labels(DECLARATIONS, name, "audit"),
        params=audit_params(),
        doc_md=__doc__,
    ):
        audit = AuditOperator(
            task_id="audit",
            stream=name,
            application=JOB,
            retries=2,
            retry_delay=timedelta(seconds=30),
            pool=audit_pool(),
        )
        follow(audit)
        audit >> PanelsOperator(task_id="panels", streams=[name], trigger_rule="all_done")
