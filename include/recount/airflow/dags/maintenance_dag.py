"""Every day: validation runs and logs that are older than declared (`RECOUNT_KEEPING`) are removed.

Delta tables are trimmed by their writers: a stream's by its driver, an audit's by the audit.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow.sdk import DAG, task

from recount.airflow.dags.dag_plan import DagPlan
from recount.airflow.naming import MAINTENANCE
from recount.airflow.notices import notifiers


def maintenance_dag(plan: DagPlan) -> Iterator[DAG]:
    """The DAG ``maintenance``."""
    if not plan.needs(MAINTENANCE):
        return
    with DAG(
        dag_id=MAINTENANCE,
        description="Removes files that are kept no longer",
        schedule="@daily",
        catchup=False,
        max_active_runs=1,
        default_args={"on_failure_callback": notifiers()},
        tags=["recount"],
        doc_md=__doc__,
    ) as dag:

        @task(retries=3)
        def remove_old_files() -> list:  # type: ignore[type-arg]
            """What was freed of each kind, in the log too."""
            from recount.airflow.maintenance import remove_old_files

            return remove_old_files()

        remove_old_files()
    yield dag
