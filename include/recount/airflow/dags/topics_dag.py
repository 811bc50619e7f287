"""Our topics on the cluster, as declared: daily, and by hand before a stream is started.

Topics of others, which streams only read, are compared and reported, never created (but in the embedded profile) and
never altered.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow.sdk import DAG, task

from recount.airflow.dags.dag_plan import DagPlan
from recount.airflow.naming import TOPICS
from recount.airflow.notices import notifiers


def topics_dag(plan: DagPlan) -> Iterator[DAG]:
    """The DAG ``topics``."""
    if not plan.needs(TOPICS):
        return
    with DAG(
        dag_id=TOPICS,
        description="Creates and repairs our topics, reports drift of those of others",
        schedule="@daily",
        catchup=False,
        max_active_runs=1,
        default_args={"on_failure_callback": notifiers()},
        tags=["recount"],
        doc_md=__doc__,
    ) as dag:

        @task(retries=3)
        def bring_in_step() -> dict[str, str]:
            """One line per topic in the log: its action and why."""
            from recount.airflow.maintenance import bring_in_step

            return bring_in_step()

        bring_in_step()
    yield dag
