"""The contender Recount: its own runner and engine, as spark_jobs/stream.py drives them."""

from __future__ import annotations

import logging
from pathlib import Path

from pyspark.sql import SparkSession

from bench.contenders import AT_LEAST_ONCE
from bench.contending import Arguments, contend
from bench.jobs import AUDITED_JOBS
from bench.plain_output import PlainWork
from recount.engine.driver.runner import RunOptions, StreamRunner
from recount.engine.driver.stream_command import work_of
from recount.kafka.connection import Connection
from recount.runtime.settings import Settings


def run(session: SparkSession, settings: Settings, arguments: Arguments, prefix: str) -> Path:
    """Run the job's topology with the runner."""
    name = arguments[prefix + "application"]
    topology = AUDITED_JOBS[arguments["job"]].topology(name, arguments[prefix + "topic"], arguments[prefix + "output"])
    options = RunOptions(max_offsets=int(arguments["max-offsets"]), available_now="follow" not in arguments)
    work = work_of(session, topology, settings.data, reports=settings.reports)
    if arguments["guarantee"] == AT_LEAST_ONCE:
        work = PlainWork(work, Connection.of(settings))
    StreamRunner(session, settings, work, options).run()
    return Path(settings.checkpoints) / name


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    contend(run)
