"""``recount stream`` and the entry point of spark_jobs/stream.py."""

from __future__ import annotations

import logging
import os
from typing import Annotated

import typer

from recount.core.registry import declared
from recount.core.settings import Settings
from recount.sessions import spark_session
from recount.spark.runner import RunOptions, StreamRunner

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def stream(
    name: Annotated[str, typer.Option("--stream", help="The name of the topology to run.")],
    available_now: Annotated[bool, typer.Option(help="End once what is there now is processed.")] = False,
    max_offsets: Annotated[int, typer.Option(min=1, help="Most records of a batch.")] = RunOptions.max_offsets,
    trigger_interval_ms: Annotated[int, typer.Option(min=0, help="Start a batch every so many milliseconds.")] = 0,
) -> None:
    """Run a stream in this process until it is told to stop."""
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT)
    settings = Settings.from_environment(os.environ)
    topology = declared(settings.topologies).topology(name)
    session = spark_session(settings, f"recount stream {name}")
    options = RunOptions(max_offsets=max_offsets, trigger_interval_ms=trigger_interval_ms, available_now=available_now)
    try:
        StreamRunner(session, settings, topology, options).run()
    finally:
        session.stop()


def stream_job() -> None:
    """The command line of spark_jobs/stream.py."""
    typer.run(stream)
