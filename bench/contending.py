"""What the programs of a contender that is written in Python share with the Java one: arguments in, events out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from bench.checkpoint_times import processing_span_ms
from bench.jobs import AUDITED_JOBS
from recount.runtime.settings import Settings
from recount.tables.spark_session import spark_session

Arguments = Mapping[str, str]
RunJob = Callable[[SparkSession, Settings, Arguments, str], Path]
"""Runs the job of the arguments that begin with a prefix (``warm-up-`` or none); returns the query's checkpoint."""


def contend(run: RunJob) -> None:
    """The program: warm up, say so, run the job to the end of its topic and say when it began and ended."""
    arguments = parsed(sys.argv[1:])
    settings = settings_of(arguments)
    session = spark_session(settings, "benchmark")
    try:
        if "follow" in arguments:
            say("measuring")
            run(session, settings, arguments, "")
            return
        run(session, settings, arguments, "warm-up-")
        say("measuring")
        checkpoint, final = run(session, settings, arguments, ""), AUDITED_JOBS[arguments["job"]].results_final
        first_ms, last_ms = processing_span_ms(checkpoint, int(arguments["records"]), to_the_end=final)
        say("measured", first_ms=first_ms, last_ms=last_ms)
    finally:
        session.stop()


def parsed(pairs: Sequence[str]) -> Arguments:
    """The ``name=value`` pairs of a command line."""
    return dict(pair.split("=", 1) for pair in pairs)


def settings_of(arguments: Arguments) -> Settings:
    """Everything below the run's own folder."""
    state = arguments["state"]
    return Settings(
        profile="embedded",
        bootstrap_servers=arguments["bootstrap"],
        data=f"{state}/tables",
        checkpoints=f"{state}/checkpoints",
        reports=f"{state}/reports",
        logs=f"{state}/logs",
        run=f"{state}/run",
        jars=arguments["jars"],
        spark_security=arguments.get("spark-security", ""),
    )


def say(event: str, **details: int) -> None:
    """One line of JSON on standard output."""
    print(json.dumps({"event": event, **details}), flush=True)
