"""What the audit is compared with, and the audits themselves: ``python -m bench.audit_job WHICH name=value ...``.

All first do the same on the warm-up topic in the same process, as the contenders of the throughput do.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from bench.auditing import AGGREGATION, ARCHIVE, AUDIT, EXPECTATIONS, SECOND_NIGHT
from bench.contending import Arguments, parsed, say, settings_of
from bench.jobs import AUDITED_JOBS, ORDERS_WITH_PAYMENTS, orders_topic
from bench.payments import payments_of
from bench.structured_streaming import BATCH_JOBS, PAYMENT, decoded
from recount.audit.audit_session import OF_AN_AUDIT, java_options_for
from recount.audit.carry.store import AuditStore
from recount.audit.cut.audited_ledger import Ledger
from recount.audit.expectations.validation import FAILED, validate
from recount.audit.findings.finding_register import Findings, Interval
from recount.audit.night import audited
from recount.declare.groups import Archive
from recount.declare.topology import Topology
from recount.engine.driver.runner import RunOptions, StreamRunner
from recount.engine.upkeep.archive_stream import ArchiveWork
from recount.kafka.connection import SCAN_OPTIONS
from recount.runtime.settings import Settings
from recount.tables.places import Tables
from recount.tables.spark_session import spark_session


@dataclass(frozen=True)
class Told:
    """How many records were judged or counted, and the violations found."""

    records: int
    violations: int = 0


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What there is to audit: the job of ``arguments``, on the warm-up topic or the other one."""

    session: SparkSession
    settings: Settings
    arguments: Arguments
    prefix: str

    @property
    def topic(self) -> str:
        """The source."""
        return self.arguments[self.prefix + "topic"]

    @property
    def topology(self) -> Topology:
        """The job as Recount's topology."""
        names = (self.arguments[self.prefix + name] for name in ("application", "topic", "output"))
        return AUDITED_JOBS[self.arguments["job"]].topology(*names)

    def records(self, topic: str, *schema: str) -> tuple[DataFrame, Observation]:
        """The decoded records of ``topic``, and how many there were once they have been read."""
        records = (
            self.session.read.format("kafka")
            .option("kafka.bootstrap.servers", self.arguments["bootstrap"])
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .options(**SCAN_OPTIONS)
            .load()
        )
        counted = Observation()
        return decoded(records, *schema).observe(counted, F.count("*").alias("records")), counted


def aggregation(scene: Scene) -> Told:
    """The same job as a batch query, as Spark's documentation would write it; its results become a Delta table."""
    inputs = [scene.records(scene.topic)]
    if scene.arguments["job"] == ORDERS_WITH_PAYMENTS.name:
        inputs.append(scene.records(payments_of(scene.topic), PAYMENT))
    results = BATCH_JOBS[scene.arguments["job"]](*(records for records, _ in inputs))
    results.write.format("delta").mode("overwrite").save(f"{scene.settings.data}/plain-{scene.prefix}results")
    return Told(sum(counted.get["records"] for _, counted in inputs))


def audit(scene: Scene) -> Told:
    """A whole nightly audit, certificate and its own tables included, of all that the stream has read."""
    return _told(audited(scene.session, scene.settings, scene.topology, from_the_beginning=True).findings)


def archive(scene: Scene) -> None:
    """Copy the topic to its archive."""
    work = ArchiveWork(scene.session, Archive(topic=orders_topic(scene.topic)), scene.settings.data)
    StreamRunner(scene.session, scene.settings, work, RunOptions(available_now=True)).run()


def audit_of_the_archive(scene: Scene) -> Told:
    """The same audit, of which the log is read from the archive."""
    done = audited(scene.session, scene.settings, scene.topology, source="archive", from_the_beginning=True)
    return _told(done.findings)


def first_night(scene: Scene) -> None:
    """Audit all batches but the last; of one batch alone, nothing."""
    proofs = Ledger.read(Tables(scene.settings.data), scene.topology.name).proofs
    if len(proofs) > 1:
        before_the_last = Interval(end_ms=proofs[-1].batch_timestamp_ms)
        audited(scene.session, scene.settings, scene.topology, interval=before_the_last, from_the_beginning=True)


def second_night(scene: Scene) -> Told:
    """The audit that goes on where the first night ended."""
    return _told(audited(scene.session, scene.settings, scene.topology).findings)


def first_audit(scene: Scene) -> None:
    """The audit that expectations look at."""
    audit(scene)


def expectations(scene: Scene) -> Told:
    """All suites on what the newest audit looked at."""
    store = AuditStore(Tables(scene.settings.data), scene.topology.name)
    newest = store.runs()[-1].audit
    outcome = validate(scene.session, scene.settings, scene.topology, newest)
    failed = sum(outcome.told(suite) == FAILED for suite in outcome.suites)
    records = sum(part.records for part in store.partitions(newest))
    return Told(records, failed + len(outcome.disagreements))


def _told(findings: Findings) -> Told:
    return Told(sum(account.records for account in findings.accounts), len(findings.differences))


def _nothing(_scene: Scene) -> None:
    pass


WHAT: dict[str, tuple[Callable[[Scene], None], Callable[[Scene], Told]]] = {
    AGGREGATION: (_nothing, aggregation),
    AUDIT: (_nothing, audit),
    ARCHIVE: (archive, audit_of_the_archive),
    SECOND_NIGHT: (first_night, second_night),
    EXPECTATIONS: (first_audit, expectations),
}
"""What has to be there first, and what is measured."""


def main(which: str, arguments: Arguments) -> None:
    """Warm up, say so, do it, say how long it took; with the settings of an application of audits."""
    prepare, measured = WHAT[which]
    options = java_options_for(int(arguments["records"]))
    session = spark_session(settings := settings_of(arguments), "benchmark", java_options=options, conf=OF_AN_AUDIT)
    try:
        warm_up, scene = (
            Scene(session=session, settings=settings, arguments=arguments, prefix=prefix) for prefix in ("warm-up-", "")
        )
        prepare(warm_up)
        measured(warm_up)
        prepare(scene)
        say("measuring")
        begun_s = time.monotonic()
        told = measured(scene)
        milliseconds = round((time.monotonic() - begun_s) * 1_000)
        say("measured", milliseconds=milliseconds, records=told.records, violations=told.violations)
    finally:
        session.stop()


if __name__ == "__main__":
    main(sys.argv[1], parsed(sys.argv[2:]))
