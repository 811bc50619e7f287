"""The stream that joins many records of few keys, or its audit: ``python -m bench.join_program stream name=value ...``.

``idle`` starts Spark and ends.
"""

from __future__ import annotations

import logging
import sys

from pyspark.sql import SparkSession

from bench.contending import parsed, say, settings_of
from recount.audit.night import audited
from recount.declare.flow import stream
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import UNLIMITED_RETENTION_MS, Topic
from recount.declare.topology import Topology
from recount.engine.driver.runner import RunOptions, StreamRunner
from recount.engine.driver.stream_command import work_of
from recount.tables.spark_session import session_configuration

NAME = "near-in-time"
WITHIN = "5 s"
GRACE = "60 s"


def _topic(name: str, field: str) -> Topic:
    schema = RecordSchema.of(**{field: LONG}, required=(field,))
    return Topic(name=name, key="shop", value=schema, retention_ms=UNLIMITED_RETENTION_MS)


CLICKS, SALES = _topic("clicks", "click"), _topic("sales", "sale")
PAIRS = Topic(name="pairs", key="shop", retention_ms=UNLIMITED_RETENTION_MS)


def topology() -> Topology:
    """Clicks and sales of one shop within five seconds of each other."""
    pairs = stream(CLICKS).join(stream(SALES), before=WITHIN, after=WITHIN, grace=GRACE)
    return Topology(name=NAME, sinks=[pairs.to(PAIRS)])


def main(what: str, given: list[str]) -> None:
    """Run the stream to the end of its topics, or audit all it did; says how many pairs it wrote, or differences."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    arguments = parsed(given)
    settings = settings_of(arguments)
    configuration = {
        **session_configuration(settings.jars),
        "spark.master": "local[2]",
        "spark.app.name": f"{NAME} {what}",
        "spark.driver.memory": arguments["heap"],
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": f"{arguments['state']}/spark",
        "spark.ui.enabled": "false",
    }
    session = SparkSession.builder.config(map=configuration).getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    try:
        if what == "idle":
            session.range(1).collect()
            say("done")
        elif what == "stream":
            work = work_of(session, topology(), settings.data, reports=settings.reports)
            options = RunOptions(max_offsets=int(arguments["max-offsets"]), available_now=True)
            StreamRunner(session, settings, work, options).run()
            proofs = (entry.proof for entry in work.history.newest_first())
            say("done", pairs=sum(sum(proof.emitted.values()) for proof in proofs))
        else:
            findings = audited(session, settings, topology()).findings
            records = sum(account.records for account in findings.accounts)
            say("done", records=records, differences=len(findings.differences), match=int(findings.outcome == "match"))
    finally:
        session.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
