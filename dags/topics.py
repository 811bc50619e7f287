"""Every declared topic on the cluster, as declared: daily, and by hand before a stream is started."""

from airflow.sdk import DAG, task

with DAG(
    dag_id="topics",
    description="Creates the declared topics, repairs safe drift, refuses unsafe drift",
    schedule="@daily",
    catchup=False,
    max_active_runs=1,
    tags=["recount"],
    doc_md=__doc__,
):

    @task(retries=3)
    def bring_in_step() -> dict[str, str]:
        """One line per topic in the log: its action and why."""
        from recount.airflow.topics import bring_in_step

        return bring_in_step()

    bring_in_step()
