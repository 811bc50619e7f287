"""What the audit is compared with, and the audit itself: ``python -m bench.audit_job WHICH name=value ...``.

Both first do the same on the warm-up topic in the same process, as the contenders of the throughput do.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from bench.contending import Arguments, parsed, say, settings_of
from bench.jobs import JOBS
from bench.structured_streaming import FETCH, decoded
from bench.structured_streaming import JOBS as PLAIN_JOBS
from recount.audit.nightly import audited
from recount.core.settings import Settings
from recount.sessions import spark_session


def audit(session: SparkSession, settings: Settings, arguments: Arguments, prefix: str) -> int:
    """A whole nightly audit, certificate and verdict tables included; returns how many violations it found."""
    topology = JOBS[arguments["job"]].topology(
        arguments[prefix + "application"], arguments[prefix + "topic"], arguments[prefix + "output"]
    )
    return len(audited(session, settings, topology).findings.differences)


def aggregation(session: SparkSession, _settings: Settings, arguments: Arguments, prefix: str) -> int:
    """The same job as a batch query, as Spark's documentation would write it; its results are collected."""
    records = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", arguments["bootstrap"])
        .option("subscribe", arguments[prefix + "topic"])
        .option("startingOffsets", "earliest")
        .options(**FETCH)
        .load()
    )
    rows = PLAIN_JOBS[arguments["job"]](decoded(records)).collect()
    counted = sum(row.orders for row in rows)
    expected = int(arguments[prefix + "records"])
    assert counted == expected, f"{counted:,} of {expected:,} records"
    return 0


WHAT: dict[str, Callable[[SparkSession, Settings, Arguments, str], int]] = {"audit": audit, "aggregation": aggregation}


def main(which: str, arguments: Arguments) -> None:
    """Warm up, say so, do it, say how long it took."""
    session = spark_session(settings := settings_of(arguments), "benchmark")
    try:
        WHAT[which](session, settings, arguments, "warm-up-")
        say("measuring")
        begun_s = time.monotonic()
        violations = WHAT[which](session, settings, arguments, "")
        say("measured", milliseconds=round((time.monotonic() - begun_s) * 1_000), violations=violations)
    finally:
        session.stop()


if __name__ == "__main__":
    main(sys.argv[1], parsed(sys.argv[2:]))
