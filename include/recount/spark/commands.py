"""``recount stream`` and the entry point of spark_jobs/stream.py."""

from __future__ import annotations

import logging
import os
from typing import Annotated

import typer
from pyspark.sql import SparkSession

from recount.core.archive import Archive
from recount.core.registry import Stream, declared
from recount.core.settings import Settings
from recount.sessions import spark_session
from recount.spark.archive import ArchiveWork
from recount.spark.batch import TopologyWork
from recount.spark.delta_table import DELTA_LOG_KEPT_MS
from recount.spark.runner import RunOptions, StreamRunner
from recount.spark.work import Work

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def stream(
    name: Annotated[str, typer.Option("--stream", help="The name of the topology to run.")],
    available_now: Annotated[bool, typer.Option(help="End once what is there now is processed.")] = False,
    max_offsets: Annotated[int, typer.Option(min=1, help="Most records of a batch.")] = RunOptions.max_offsets,
    target_batch_ms: Annotated[
        int,
        typer.Option(min=0, help="Milliseconds that a batch may take unless the stream is far behind (0: any time)."),
    ] = RunOptions.target_batch_ms,
    trigger_interval_ms: Annotated[int, typer.Option(min=0, help="Start a batch every so many milliseconds.")] = 0,
    transaction_timeout_ms: Annotated[
        int,
        typer.Option(min=1_000, help="Milliseconds after which the brokers abort the transaction of a batch."),
    ] = RunOptions.transaction_timeout_ms,
    memory_limit_mib: Annotated[
        int, typer.Option(min=0, help="MiB that Python, JVM and local workers may hold (0: what the machine has).")
    ] = 0,
    delta_log_kept_ms: Annotated[
        int,
        typer.Option(min=60_000, help="Milliseconds for which earlier versions of the Delta tables can be read."),
    ] = DELTA_LOG_KEPT_MS,
) -> None:
    """Run a stream in this process until it is told to stop."""
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT)
    settings = Settings.from_environment(os.environ)
    declaration = declared(settings.topologies).stream(name)
    session = spark_session(settings, f"recount stream {name}")
    options = RunOptions(
        max_offsets=max_offsets,
        target_batch_ms=target_batch_ms,
        trigger_interval_ms=trigger_interval_ms,
        available_now=available_now,
        transaction_timeout_ms=transaction_timeout_ms,
        memory_limit=memory_limit_mib * 2**20,
    )
    work = work_of(session, declaration, settings.data, delta_log_kept_ms=delta_log_kept_ms)
    try:
        StreamRunner(session, settings, work, options).run()
    finally:
        session.stop()


def work_of(
    session: SparkSession, declaration: Stream, root: str, *, delta_log_kept_ms: int = DELTA_LOG_KEPT_MS
) -> Work:
    """What the engine runs for ``declaration``, with its tables below ``root``.

    The commits of an archive are its ledger, and all are kept.
    """
    if isinstance(declaration, Archive):
        return ArchiveWork(session, declaration, root)
    return TopologyWork(declaration, root, delta_log_kept_ms=delta_log_kept_ms)


def stream_job() -> None:
    """The command line of spark_jobs/stream.py."""
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(stream)
    app()
