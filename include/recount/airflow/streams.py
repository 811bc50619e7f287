"""Keeps one stream running: adopt or launch its driver, wait deferred, relaunch with backoff, give up in the end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from recount.airflow.deployed import require_admitted
from recount.airflow.drivers import GroupDriver, find_driver, log_of, record_of
from recount.airflow.health import standstill
from recount.airflow.lineage import StreamLineage
from recount.airflow.links import StreamLink, StreamTask, stream_page
from recount.airflow.notices import airflow_failures, notify
from recount.airflow.orders import hidden_status, is_held, start, stop, wait_for_end
from recount.airflow.submission import DEFAULT_CONNECTION, Submission
from recount.airflow.triggers import BackoffTrigger, ReleaseTrigger, StreamHealthTrigger, health_from, limits_of
from recount.declare.limits import Health, Resources
from recount.kafka.compacted import Isolation
from recount.kafka.connection import Connection
from recount.kafka.leases import request_run
from recount.kafka.status import last_epoch, status_of
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms, quantity, roughly

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

_RELAUNCHES_FORGOTTEN_AFTER_MS = 600_000
_MOST_BACKOFF_MS = 300_000
SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For the JVM of a group's driver, whose cores are for the tasks of many streams: it plans small batches, and the
optimising compiler takes more than it saves (docs/decisions/0025)."""

STOPPED = "stopped by order"
FREE = "free to run"
"""What ``hold`` found; a hold that a user marked a success has found nothing."""


class HoldOperator(StreamTask):
    """Done at once, unless an order to stop stands for the stream: then it waits, deferred, for the order's withdrawal.

    Marking the waiting task a success starts the stream all the same.
    """

    def execute(self, context: Context) -> str:
        with airflow_failures():
            held = is_held(self.stream)
        if held:
            self.log.info("stream %s is stopped by order; start it with the DAG stream_control", self.stream)
            self.defer(trigger=ReleaseTrigger(stream=self.stream), method_name="released")
        return FREE

    def released(self, context: Context, event: dict[str, Any]) -> str:
        self.log.info("the order to stop was withdrawn")
        return FREE


class StreamOperator(StreamTask):
    """Runs ``stream`` for as long as the task lives; its driver is a process of its own, independent of Airflow's.

    A driver at work is adopted, so a restart of Airflow, or of this task, leaves the stream untouched. A driver that
    ended or makes no progress is ended for certain, then launched again after a backoff that doubles from ``backoff_s``
    to 5 minutes. The new driver's lease fences the old one, should it still live somewhere. After ``relaunches`` in a
    row the task fails, and an order to stop keeps the next run from launching it: a human must look. It fails at once
    where the driver says that no relaunch can help, with the remedy that it names.

    A driver whose declaration is not the deployed one is stopped after its batch and launched again. Where the stream's
    state does not go with the deployed declaration the task fails and says what changed; ``recount reset`` or ``recount
    upgrade`` helps, and then the order to start.

    Success means: the stream was stopped by order. Marking the task failed or success in the UI stops the stream;
    clearing it starts the watch again, which adopts the driver.

    A stream that is degraded (a backlog, an old frontier, too many late or bad records) is left alone: the notifiers of
    ``RECOUNT_NOTIFIERS``, or those at the place ``notifiers``, are called, and again when it is well. They are called
    at every relaunch, too.

    ``run_options`` go to the driver's command line, such as ``["--target-batch-ms", "1000"]``.

    The stream of a ``group`` shares its driver. The operator makes sure that there is one, and asks it to run the
    stream. Stop and relaunch concern the stream alone; the driver is launched where it is dead or does not answer.
    Where it runs another declaration of the stream than the deployed one it is replaced, after a batch of each of its
    streams: only a new process has the new code. The streams of a group need the same ``run_options``.
    """

    operator_extra_links = (StreamLink(),)

    def __init__(
        self,
        *,
        application: Path,
        limits: Health,
        group: str | None = None,
        connection: str = DEFAULT_CONNECTION,
        spark_resources: Resources | None = None,
        run_options: Sequence[str] = (),
        notifiers: str | None = None,
        relaunches: int = 5,
        backoff_s: int = 2,
        start_timeout_s: int = 180,
        stop_timeout_s: int = 60,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.application = str(application)
        self.limits = limits_of(limits)
        self.group = group
        self.connection = connection
        self.spark_resources = spark_resources or Resources()
        self.run_options = list(run_options)
        self.notifiers = notifiers
        self.relaunches = relaunches
        self.backoff_s = backoff_s
        self.start_timeout_s = start_timeout_s
        self.stop_timeout_s = stop_timeout_s

    def execute(self, context: Context) -> str | None:
        with airflow_failures():
            # before the look at the status: a stream that its group's driver starts in between is what is wanted
            epoch = last_epoch(Connection.of(Settings.from_environment(os.environ)), self.stream)
            adopted = self._adopted()
            if adopted is None and self._stopped_since_hold(context):
                wait_for_end(self.stream, self.stop_timeout_s, self.group)
                return STOPPED
            after_epoch, launched_at_ms = adopted or self._launch(epoch)
        context["ti"].xcom_push(key=StreamLink().xcom_key, value=stream_page(self.stream))
        self._wait(after_epoch, launched_at_ms, relaunched=0)
        return None

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        return StreamLineage.of(self.stream).running()

    def found(
        self, context: Context, event: dict[str, Any], relaunched: int, after_epoch: int = 0, launched_at_ms: int = 0
    ) -> None:
        """The watch ended with a ``Finding``."""
        if event["outcome"] == "stopped":
            with airflow_failures():
                is_ordered = self.group is None or is_held(self.stream)
            if is_ordered:
                self.log.info("stopped by order")
                return
            self.log.info("stopped with the driver of its group, which is replaced")
            self.relaunch(context, event, relaunched)
        reasons = "; ".join([event["outcome"], *event["reasons"]])
        self.log.warning("stream %s: %s", self.stream, reasons)
        if event["outcome"] == "outdated":
            self._replace(relaunched)
            return
        if event["healthy_ms"] >= _RELAUNCHES_FORGOTTEN_AFTER_MS:
            relaunched = 0
        is_over = event["outcome"] == "refused" or relaunched >= self.relaunches
        if not is_over or event["outcome"] in ("degraded", "recovered"):
            # Airflow itself notifies of a task that fails
            notify(context, f"stream {self.stream}: {reasons}", self.notifiers)
        if event["outcome"] in ("degraded", "recovered"):
            self._wait(after_epoch, launched_at_ms, relaunched, degraded=event["outcome"] == "degraded")
        with airflow_failures():
            self._end_driver()
            if event["outcome"] == "refused":
                stop(self.stream)
                raise AirflowFailException(f"{self.stream}: no relaunch can help: {reasons}")
            if relaunched >= self.relaunches:
                stop(self.stream)
                tries = quantity(relaunched, "relaunch", "relaunches")
                raise AirflowFailException(f"{self.stream}: gave up after {tries}; at last: {reasons}")
        backoff_ms = min(_MOST_BACKOFF_MS, 1_000 * self.backoff_s * 2**relaunched)
        self.log.info("relaunch %d of %d in %s", relaunched + 1, self.relaunches, roughly(backoff_ms))
        self.defer(
            trigger=BackoffTrigger(stream=self.stream, until_ms=clock_ms() + backoff_ms, group=self.group),
            method_name="relaunch",
            kwargs={"relaunched": relaunched + 1},
        )

    def relaunch(self, context: Context, event: dict[str, Any], relaunched: int) -> None:
        """The backoff is over."""
        with airflow_failures():
            after_epoch, launched_at_ms = self._launch()
        self._wait(after_epoch, launched_at_ms, relaunched)

    def _replace(self, relaunched: int) -> None:
        """End a driver with other code than the deployed one after its batch, and launch one with that.

        Where the deployed declaration would be refused, the order to stop stands until a human has acted.
        """
        with airflow_failures():
            settings = Settings.from_environment(os.environ)
            is_ordered = is_held(self.stream)
            outdated = status_of(Connection.of(settings), self.stream, "read_committed")
            stop(self.stream)
            wait_for_end(self.stream, self.stop_timeout_s, self.group)
            if is_ordered:
                self.log.info("stopped by order")
                return
            require_admitted(settings, self.stream)
            start(self.stream)
            if self.group is not None:
                application_id = outdated.application_id if outdated else None
                self._group_driver(settings).replace(self._submission(settings), application_id)
            after_epoch, launched_at_ms = self._launch()
        self._wait(after_epoch, launched_at_ms, relaunched)

    def _stopped_since_hold(self, context: Context) -> bool:
        """Whether the order to stop was given after ``hold`` had let this run pass: then the next run holds.

        Asked as the last thing before a launch: the order can come at any moment until then.
        """
        return bool(context["ti"].xcom_pull(task_ids="hold") == FREE) and is_held(self.stream)

    def _adopted(self) -> tuple[int, int] | None:
        """Return what to watch when a driver is at work or just starting; None when one has to be launched."""
        settings = Settings.from_environment(os.environ)
        driver = find_driver(record_of(settings.run, self.group or self.stream))
        is_dead = driver is not None and not driver.is_alive
        hidden = hidden_status(Connection.of(settings), self.stream)  # before the status: see StatusBoard.hidden
        # many streams publish at once, and hide each other's statuses for moments; not to adopt one would run it again
        isolation: Isolation = "read_committed" if self.group is None else "read_uncommitted"
        status = status_of(Connection.of(settings), self.stream, isolation)
        if is_held(self.stream):
            self.log.info("the last driver has the order to stop: waiting for its end")
            wait_for_end(self.stream, self.stop_timeout_s, self.group)
            return None
        if status is not None and not is_dead and not status.is_over:
            reasons = standstill(status, health_from(self.limits), clock_ms())
            if reasons and hidden:
                # whether the driver is silent, the watch finds out once the transaction is decided
                self.log.warning("an open transaction hides the status at %s: %s", hidden, "; ".join(reasons))
            if hidden or not reasons:
                self.log.info("adopting driver %s, lease epoch %d", status.driver_id, status.lease_epoch)
                return status.lease_epoch - 1, clock_ms()
            self.log.warning("not adopting driver %s: %s", status.driver_id, "; ".join(reasons))
        started_ms = int(driver.started * 1_000) if driver is not None else 0
        if (
            self.group is None
            and driver is not None
            and not is_dead
            and (status is None or status.heartbeat_ms < started_ms)
        ):
            self.log.info("adopting the driver, %s, which is starting", driver.name)
            return status.lease_epoch if status else 0, started_ms
        return None

    def _launch(self, epoch: int | None = None) -> tuple[int, int]:
        """Launch a driver; returns the last lease epoch before it and the time.

        The driver of a group is asked to run the stream with a lease above ``epoch`` (None: above the last one).

        Raises ``Terminal``, and leaves an order to stop, where the driver would refuse the deployed declaration.
        """
        settings = Settings.from_environment(os.environ)
        try:
            require_admitted(settings, self.stream)
        except Terminal:
            stop(self.stream)
            raise
        self._end_driver()
        after_epoch = last_epoch(Connection.of(settings), self.stream)
        submission = self._submission(settings)
        launched_at_ms = clock_ms()
        if self.group is not None:
            # before the driver is looked for: one that is about to end reads the orders once more
            after_epoch = after_epoch if epoch is None else epoch
            request_run(Connection.of(settings), self.stream, after_epoch)
            self._group_driver(settings).ensure(submission)
            return after_epoch, launched_at_ms
        log = log_of(settings.logs, self.stream)
        driver = submission.launch(record=record_of(settings.run, self.stream), log=log)
        self.log.info("launched %s, log %s", driver.name if driver else "on the cluster", log)
        return after_epoch, launched_at_ms

    def _submission(self, settings: Settings) -> Submission:
        alone = ["--stream", self.stream]
        return Submission(
            application=Path(self.application),
            arguments=[*(["--group", self.group, "--on-order"] if self.group else alone), *self.run_options],
            name=f"recount group {self.group}" if self.group else f"recount stream {self.stream}",
            settings=settings,
            connection=self.connection,
            resources=self.spark_resources,
            java_options=SMALL_JVM if self.group else "",
        )

    def _group_driver(self, settings: Settings) -> GroupDriver:
        assert self.group is not None
        return GroupDriver(
            settings=settings,
            group=self.group,
            start_timeout_s=self.start_timeout_s,
            stop_timeout_s=self.stop_timeout_s,
        )

    def _end_driver(self) -> None:
        """End the driver that the stream has for itself, or had before it came into a group."""
        settings = Settings.from_environment(os.environ)
        driver = find_driver(record_of(settings.run, self.stream))
        if driver is not None and driver.is_alive:
            self.log.info("ending the driver, %s", driver.name)
            driver.end()

    def _wait(self, after_epoch: int, launched_at_ms: int, relaunched: int, *, degraded: bool = False) -> None:
        self.defer(
            trigger=StreamHealthTrigger(
                stream=self.stream,
                limits=self.limits,
                after_epoch=after_epoch,
                launched_at_ms=launched_at_ms,
                start_timeout_ms=1_000 * self.start_timeout_s,
                degraded=degraded,
                group=self.group,
            ),
            method_name="found",
            kwargs={"relaunched": relaunched, "after_epoch": after_epoch, "launched_at_ms": launched_at_ms},
        )
