"""One DAG per topology: every night, and by hand at any time, is each output there exactly once?

By hand: `through` = now judges everything there is; a time (ISO 8601) re-audits as of then.
"""

import os
from datetime import timedelta
from pathlib import Path

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, CronTriggerTimetable, Param

from recount.airflow.audits import AuditOperator, ExpectationsOperator, GraceMissesOperator, LimitsOperator
from recount.airflow.naming import audit_dag, domain_of, labels
from recount.airflow.notices import notifiers
from recount.core.registry import DEFAULT_MODULES, declared

JOB = Path(__file__).parents[1] / "spark_jobs" / "audit.py"
# Without a start date the first run is the next night's: what was before the stream is nobody's audit. Airflow takes
# run_immediately=False for a tenth of the interval: a stream new at 02:00 would be audited for the night before.
NIGHTLY = CronTriggerTimetable("0 1 * * *", timezone="UTC", interval=timedelta(days=1), run_immediately=timedelta(0))
DECLARATIONS = declared(os.environ.get("RECOUNT_TOPOLOGIES", DEFAULT_MODULES))

for name in DECLARATIONS.topologies:
    with DAG(
        dag_id=audit_dag(name),
        description=f"Proves the outputs of {name} from the raw log",
        schedule=NIGHTLY,
        catchup=False,
        max_active_runs=1,
        default_args={"owner": domain_of(DECLARATIONS, name), "on_failure_callback": notifiers()},
        **labels(DECLARATIONS, name, "audit"),
        params={
            "through": Param("", type="string", description="Judge what was recorded before: a time, or now"),
            "source": Param("kafka", type="string", enum=["kafka", "archive"], description="Where the log is read"),
            "announce": Param(True, type="boolean", description="Let grace misses start the backfill"),
        },
        doc_md=__doc__,
    ):
        found = "{{ ti.xcom_pull(task_ids='audit', key='%s') }}"
        audit = AuditOperator(
            task_id="audit", stream=name, application=JOB, retries=2, retry_delay=timedelta(seconds=30)
        )
        expectations = ExpectationsOperator(
            task_id="expectations", stream=name, audit=found % "audit", trigger_rule="all_done"
        )
        announce = GraceMissesOperator(
            task_id="grace_misses",
            stream=name,
            audit=found % "audit",
            misses=found % "grace_misses",
            trigger_rule="all_done",
        )
        limits = LimitsOperator(task_id="limits", stream=name, warnings=found % "warnings", trigger_rule="all_done")
        # What late records would change is announced after a violation too; this task makes the run fail all the same.
        proved = EmptyOperator(task_id="proved", trigger_rule="none_failed")
        audit >> expectations >> announce >> proved
        audit >> [announce, limits, proved]
        [expectations, limits] >> proved
