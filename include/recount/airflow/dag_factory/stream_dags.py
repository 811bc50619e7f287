"""One DAG per declared stream, which keeps it running, and DAGs for orders, old files and topics.

``stream_control`` orders to stop or to start; ``maintenance`` removes old files; ``topics`` creates and repairs topics.
"""

import inspect
import logging
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, Param, task

from recount.airflow.dag_factory.dag_plan import DagPlan
from recount.airflow.links import CONTROL, MAINTENANCE, TOPICS, labels, stream_dag
from recount.airflow.notices import airflow_failures, notifiers
from recount.airflow.streams import HoldOperator, StreamOperator
from recount.declare.registry import declared
from recount.kafka.connection import Connection
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms

_LOG = logging.getLogger(__name__)

# A continuous DAG without a start date gives its second run the first one's date, and never starts it.
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def stream_dags(plan: DagPlan) -> Iterator[DAG]:
    for name in plan.declarations.streams:
        if plan.needs(stream_dag(name)):
            yield _kept_running(plan, name)
    if plan.needs(CONTROL):
        yield _control(plan)


def _kept_running(plan: DagPlan, name: str) -> DAG:
    declarations = plan.declarations
    group, settings, driver = declarations.group_of(name), plan.settings_of(name), plan.driver_settings_of(name)
    with DAG(
        dag_id=stream_dag(name),
        description=f"Keeps the stream {name} running",
        schedule="@continuous",
        start_date=BEGINNING,
        max_active_runs=1,
        catchup=False,
        default_args=plan.default_args(name),
        **labels(declarations, name, "stream"),
        doc_md=StreamOperator.__doc__,
    ) as dag:
        # Retries are for Airflow's own mishaps (a trigger fires before its worker has left): the driver is adopted.
        HoldOperator(task_id="hold", stream=name, retries=3) >> StreamOperator(
            task_id="run",
            stream=name,
            application=plan.job("stream"),
            limits=declarations.streams[name].health,
            group=group.name if group else None,
            spark_resources=driver.driver.with_driver_memory(group.driver_memory if group else "2g"),
            run_options=driver.run_options,
            notifiers=settings.notifiers,
            retries=10,
            retry_delay=timedelta(seconds=10),
        )
    return dag


def _control(plan: DagPlan) -> DAG:
    streams = plan.declarations.streams
    names = list(streams)
    with DAG(
        dag_id=CONTROL,
        description="Stops a stream after its batch, or starts it again",
        schedule=None,
        default_args={"on_failure_callback": notifiers()},
        tags=["recount", "stream"],
        params={
            "stream": Param(
                next(iter(streams), ""),
                type="string",
                examples=list(streams),
                description="The stream; to stop also one that is declared no longer, or group.NAME",
            ),
            "order": Param("stop", type="string", enum=["stop", "start"], description="What it is to do"),
        },
        doc_md=__doc__,
    ) as dag:

        @task(retries=3)
        def give_order(stream: str, order: str) -> None:
            """A stop stands until it is withdrawn by a start."""
            from recount.airflow import orders
            from recount.airflow.notices import airflow_failures

            with airflow_failures():
                orders.give(stream, order, declared=names)

        give_order("{{ params.stream }}", "{{ params.order }}")
    return dag


def maintenance_dag(plan: DagPlan) -> Iterator[DAG]:
    """Every hour: streams without a declaration are reported, old validation runs and logs (`RECOUNT_KEEPING`) removed.

    A driver goes on when its stream is no longer declared, and no DAG of its own is left: `drivers` fails then.
    Delta tables are trimmed by their writers: a stream's by its driver, an audit's by the audit.
    """
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
        doc_md=inspect.getdoc(maintenance_dag),
    ) as dag:

        @task(retries=3)
        def remove_old_files() -> list:  # type: ignore[type-arg]
            """Return what was freed of each kind, as the log says too."""
            from recount.lifecycle.old_files import remove_old

            with airflow_failures():
                found = remove_old(Settings.from_environment(os.environ), clock_ms())
                for freed in found:
                    _LOG.info("%s: freed %.1f MiB in %d files", freed.kind, freed.bytes / 2**20, freed.files)
            return [asdict(freed) for freed in found]

        @task(retries=3)
        def drivers() -> None:
            """Red while a stream or group runs that is declared no longer: no other DAG looks after it."""
            from recount.kafka.leases import require_declared
            from recount.kafka.status import StatusBoard

            with airflow_failures():
                settings = Settings.from_environment(os.environ)
                with closing(StatusBoard(Connection.of(settings), isolation="read_uncommitted")) as board:
                    require_declared(board.latest(), declared(settings.topologies), clock_ms())

        remove_old_files()
        drivers()
    yield dag


def topics_dag(plan: DagPlan) -> Iterator[DAG]:
    """Our topics on the cluster, as declared: daily, and by hand before a stream is started.

    Topics of others, which streams only read, are compared and reported, never created (but in the embedded profile)
    and never altered.
    """
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
        doc_md=inspect.getdoc(topics_dag),
    ) as dag:

        @task(retries=3)
        def bring_in_step() -> dict[str, str]:
            """One line per topic in the log: its action and why. A problem with one does not keep the others."""
            from recount.kafka.topic_drift import all_topics
            from recount.kafka.topics_on_cluster import apply, plan

            with airflow_failures():
                settings = Settings.from_environment(os.environ)
                connection = Connection.of(settings)
                admin = connection.admin()
                changes = plan(admin, all_topics(declared(settings.topologies), connection.own), settings.profile)
                for change in changes:
                    reasons = "; ".join(change.reasons)
                    level = logging.INFO if change.action in ("create", "in step", "repair") else logging.WARNING
                    _LOG.log(level, "%s: %s%s", change.topic.name, change.action, f" ({reasons})" if reasons else "")
                apply(admin, changes)
            return {change.topic.name: change.action for change in changes}

        bring_in_step()
    yield dag
