"""Every hour: streams without a declaration are reported, old validation runs and logs (`RECOUNT_KEEPING`) removed.

A driver goes on when its stream is no longer declared, and no DAG of its own is left: `drivers` fails then.
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
        description="Tells of drivers without a declaration, removes files that are kept no longer",
        schedule="@hourly",
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

        @task(retries=3)
        def drivers() -> None:
            """Red while a stream or group runs that is declared no longer."""
            from recount.airflow.maintenance import require_all_declared

            require_all_declared()

        remove_old_files()
        drivers()
    yield dag
