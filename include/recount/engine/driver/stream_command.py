"""``recount stream`` and the entry point of spark_jobs/stream.py."""

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from recount.declare.groups import Archive
from recount.declare.registry import Declarations, Stream, declared
from recount.engine.commit.batch import TopologyWork
from recount.engine.commit.delta_table import DELTA_LOG_KEPT_MS
from recount.engine.driver.group_host import GroupHost, HostOptions, publish_refusal
from recount.engine.driver.runner import RunOptions, StreamRunner, is_final
from recount.engine.driver.stream_reports import DriverMetrics, require_alone
from recount.engine.exchange.work import Work
from recount.engine.upkeep.archive_stream import ArchiveWork
from recount.kafka.connection import Connection
from recount.runtime.console import run_job
from recount.runtime.errors import RecountError, Terminal
from recount.runtime.log_lines import write_log
from recount.runtime.settings import Settings, metric_ports
from recount.tables.spark_session import spark_session

_HEARTBEAT_OF_MANY_S = 10.0
"""Each heartbeat is a transaction; forty streams with one every other second keep a small broker busy."""


def stream(
    name: Annotated[str | None, typer.Option("--stream", help="The name of the stream to run.")] = None,
    group: Annotated[
        str | None, typer.Option(help="The name of a declared group, all of whose streams to run in this process.")
    ] = None,
    on_order: Annotated[
        bool, typer.Option(help="With --group: run a stream when an order to run it comes, as Airflow gives it.")
    ] = False,
    available_now: Annotated[bool, typer.Option(help="End once what is there now is processed.")] = False,
    max_offsets: Annotated[
        int | None, typer.Option(min=1, help="Most records of a batch (default: the group's, else a million).")
    ] = None,
    target_batch_ms: Annotated[
        int,
        typer.Option(min=0, help="Milliseconds that a batch may take unless the stream is far behind (0: any time)."),
    ] = RunOptions.target_batch_ms,
    trigger_interval_ms: Annotated[
        int | None,
        typer.Option(min=0, help="Start a batch every so many milliseconds (default: as the group declares, else 0)."),
    ] = None,
    transaction_timeout_ms: Annotated[
        int, typer.Option(min=1_000, help="Milliseconds after which the brokers abort the transaction of a batch.")
    ] = RunOptions.transaction_timeout_ms,
    memory_limit_mib: Annotated[
        int, typer.Option(min=0, help="MiB that Python, JVM and local workers may hold (0: what the machine has).")
    ] = 0,
    delta_log_kept_ms: Annotated[
        int, typer.Option(min=60_000, help="Milliseconds for which earlier versions of the Delta tables can be read.")
    ] = DELTA_LOG_KEPT_MS,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Serve metrics at this port of 127.0.0.1 (default: as RECOUNT_METRICS)."),
    ] = None,
) -> None:
    """Run a stream, or all streams of a group, in this process until it is stopped."""
    if (name is None) == (group is None):
        raise Terminal.of("nothing-to-run", given=f"--stream {name}, --group {group}")
    settings = Settings.from_environment(os.environ).acting_as("stream")
    write_log(settings.log_format, has_streams=group is not None)
    declarations = declared(settings.topologies)
    interval_ms = declarations.group(group).trigger_interval_ms if group else 0
    most = declarations.group(group).max_offsets if group else RunOptions.max_offsets
    options = RunOptions(
        max_offsets=max_offsets or most,
        target_batch_ms=target_batch_ms,
        trigger_interval_ms=interval_ms if trigger_interval_ms is None else trigger_interval_ms,
        available_now=available_now,
        transaction_timeout_ms=transaction_timeout_ms,
        memory_limit=memory_limit_mib * 2**20,
        heartbeat_s=_HEARTBEAT_OF_MANY_S if group else RunOptions.heartbeat_s,
    )
    metrics, port = DriverMetrics(), metrics_port or metric_ports(settings.metrics).get(group or name or "")
    if group:
        host_options = HostOptions(on_order=on_order)
        make = partial(work_of, root=settings.data, reports=settings.reports, delta_log_kept_ms=delta_log_kept_ms)
        with metrics.served(port):
            _run_group(settings, declarations, group, options, host_options, make, metrics)
        return
    assert name is not None
    declaration = declarations.stream(name)
    session = spark_session(settings, f"recount stream {name}")
    work = work_of(session, declaration, settings.data, reports=settings.reports, delta_log_kept_ms=delta_log_kept_ms)
    runner = StreamRunner(session, settings, work, options, metrics=metrics)
    try:
        with metrics.served(port):
            runner.run()
    except RecountError as error:
        if not runner.has_spoken:
            publish_refusal(session, settings, name, error, metrics)
        raise
    finally:
        session.stop()


def _run_group(
    settings: Settings,
    declarations: Declarations,
    group: str,
    options: RunOptions,
    host_options: HostOptions,
    make: Callable[..., Work],
    metrics: DriverMetrics,
) -> None:
    """Host the streams of ``group``; raises ``Terminal`` at the end where any that was not run by an order failed."""
    require_alone(Connection.of(settings), group)
    session = spark_session(settings, f"recount group {group}")
    works = {name: partial(make, declaration=declarations.stream(name)) for name in declarations.group(group).members}
    host = GroupHost(session, settings, group, works, options, host_options, metrics=metrics)
    stop_on_sigterm(session, host.stop)
    try:
        host.run()
    finally:
        session.stop()
    if host.failures and not host_options.on_order:
        raise Terminal.of(
            "streams-of-a-group-failed",
            given="; ".join(f"{name}: {error}" for name, error in host.failures.items()),
            group=group,
        )


def work_of(
    session: SparkSession,
    declaration: Stream,
    root: str,
    *,
    reports: str | None = None,
    delta_log_kept_ms: int = DELTA_LOG_KEPT_MS,
) -> Work:
    """The engine's work for ``declaration``, with its tables below ``root``; for ``reports`` see ``TopologyWork``.

    The commits of an archive are its ledger, and all are kept.
    """
    if isinstance(declaration, Archive):
        return ArchiveWork(session, declaration, root)
    return TopologyWork(declaration, root, reports=reports, delta_log_kept_ms=delta_log_kept_ms)


def stream_job() -> None:
    run_job("stream", stream, is_final)


class _Told:
    """A ``sun.misc.SignalHandler`` of the JVM that calls Python."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def handle(self, _signal: object) -> None:
        self._call()

    class Java:
        implements = ("sun.misc.SignalHandler",)


def stop_on_sigterm(session: SparkSession, stop: Callable[[], None]) -> None:
    """Let SIGTERM, to Python or to its JVM, call ``stop`` instead of ending the process.

    Without this the JVM would end at once, in the middle of the batches of all streams.
    """
    signal.signal(signal.SIGTERM, lambda *_: stop())
    gateway: Any = session.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    misc = gateway.jvm.sun.misc
    misc.Signal.handle(misc.Signal("TERM"), _Told(stop))
