"""One DAG per declared stream, which keeps it running; and one that gives the order to stop or to start."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, Param, task

from recount.airflow.naming import domain_of, labels, stream_dag
from recount.airflow.notices import notifiers
from recount.airflow.streams import HoldOperator, StreamOperator
from recount.core.registry import DEFAULT_MODULES, declared

JOB = Path(__file__).parents[1] / "spark_jobs" / "stream.py"
# A continuous DAG without a start date gives its second run the first one's date, and never starts it.
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
DECLARATIONS = declared(os.environ.get("RECOUNT_TOPOLOGIES", DEFAULT_MODULES))
STREAMS = DECLARATIONS.streams

for name, stream in STREAMS.items():
    group = DECLARATIONS.group_of(name)
    with DAG(
        dag_id=stream_dag(name),
        description=f"Keeps the stream {name} running",
        schedule="@continuous",
        start_date=BEGINNING,
        max_active_runs=1,
        catchup=False,
        default_args={"owner": domain_of(DECLARATIONS, name), "on_failure_callback": notifiers()},
        **labels(DECLARATIONS, name, "stream"),
        doc_md=StreamOperator.__doc__,
    ):
        # Retries are for Airflow's own mishaps (a trigger fires before its worker has left): the driver is adopted.
        HoldOperator(task_id="hold", stream=name, retries=3) >> StreamOperator(
            task_id="run",
            stream=name,
            application=JOB,
            limits=stream.health,
            group=group.name if group else None,
            driver_memory=group.driver_memory if group else "2g",
            retries=10,
            retry_delay=timedelta(seconds=10),
        )

with DAG(
    dag_id="stream_control",
    description="Stops a stream after its batch, or starts it again",
    schedule=None,
    default_args={"on_failure_callback": notifiers()},
    tags=["recount", "stream"],
    params={
        "stream": Param(next(iter(STREAMS), ""), type="string", enum=list(STREAMS), description="The stream"),
        "order": Param("stop", type="string", enum=["stop", "start"], description="What it is to do"),
    },
    doc_md=__doc__,
):

    @task(retries=3)
    def give_order(stream: str, order: str) -> None:
        """A stop stands until it is withdrawn by a start."""
        from recount.airflow import orders
        from recount.airflow.failures import airflow_failures

        with airflow_failures():
            {"stop": orders.stop, "start": orders.start}[order](stream)

    give_order("{{ params.stream }}", "{{ params.order }}")
