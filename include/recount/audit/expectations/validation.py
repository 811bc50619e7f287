"""The suites of ``expectations/`` put to what an audit looked at, and compared with what it found; with Data Docs.

Run as ``python -m recount.audit.expectations.validation --stream S --audit ID``, with several pairs of these for
several streams in one Spark application. Exit code 0: all hold; 3: an expectation failed, and the judge does not deny
it; 5: the two disagree; 1: a stream could not be validated.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from typing import Annotated

import typer
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from recount.audit.audit_session import OF_AN_AUDIT, suit
from recount.audit.carry.store import RECONCILIATION as COMPARED
from recount.audit.carry.store import AuditStore, Run
from recount.audit.certificate.certificate_files import (
    EXIT_DISAGREED,
    EXIT_FAILED,
    EXIT_UNTRIED,
    expectations_page_of,
    outcome_of,
)
from recount.audit.certificate.certificate_page import rendered
from recount.audit.cut.in_force import certified_runs, removed_by_now
from recount.audit.expectations.audited_frames import AuditedLog, AuditedRows
from recount.audit.expectations.data_docs import Checked, data_docs, data_docs_of, great_expectations
from recount.audit.expectations.suites import (
    BATCH_LEDGER,
    OUTPUTS,
    RAW_LOG,
    RECONCILIATION,
    Expectation,
    declared_columns,
    disagreements,
    expectations_of,
    judged,
    suites_of,
)
from recount.audit.findings.finding_register import read_register
from recount.declare.registry import declared
from recount.declare.topology import Topology
from recount.runtime.console import run_job
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms
from recount.tables.places import Tables
from recount.tables.spark_session import spark_session

HOLDS, WARNS, FAILED = "holds", "warns", "FAILED"
_LOG = logging.getLogger(__name__)
_PAINTED = {"holds": "match", "warns": "late", "FAILED": "violation"}


@dataclass(kw_only=True)
class Outcome:
    """Outcome of the expectations of one audit: by suite what they found, and on what the judge disagrees."""

    suites: dict[str, list[Checked]] = field(default_factory=dict)
    disagreements: list[str] = field(default_factory=list)

    def told(self, suite: str) -> str:
        """``holds``, ``warns`` where only what is a warning fails, or ``FAILED``."""
        failing = [one for one in self.suites[suite] if not one.holds]
        return HOLDS if not failing else WARNS if all(one.is_warning for one in failing) else FAILED

    @property
    def exit_code(self) -> int:
        """Exit code of a process that validated this audit alone."""
        if self.disagreements:
            return EXIT_DISAGREED
        return EXIT_FAILED if any(self.told(suite) == FAILED for suite in self.suites) else 0

    def lines(self, stream: str) -> list[str]:
        """Return the lines to print: each suite, what failed with examples, and each disagreement with what to do."""
        told = []
        for suite, checks in self.suites.items():
            told.append(f"{stream} {suite}: {self.told(suite)}")
            for one in checks:
                if not one.holds:
                    of_column = f"{one.column}: " if one.column else ""
                    told.append(f"  {'warning' if one.is_warning else 'failed'}: {of_column}{one.expectation}")
                    told += [f"    {example}" for example in one.examples]
        told += [f"{stream} DISAGREEMENT on {one}" for one in self.disagreements]
        if self.disagreements:
            told.append(_WHAT_TO_DO)
        return told


_WHAT_TO_DO = (
    "Great Expectations and the audit's judge looked at the same rows: one of them is wrong, or somebody wrote to the"
    " tables since the audit. Run the audit again --from-the-beginning; if they still disagree, trust neither, compare"
    " the certificate with the Data Docs, and report it."
)


def validate(
    session: SparkSession, settings: Settings, topology: Topology, audit: str, suites: Path | None = None
) -> Outcome:
    """Put each suite to what ``audit`` looked at, compare with what it found, and update the Data Docs.

    The outcome is written to ``outcome_of`` too. Raises ``Terminal`` when there is no complete audit of that name, or
    what it compared is kept no longer.
    """
    tables = Tables(settings.data)
    store = AuditStore(session, tables, topology.name)
    run = _complete(store, topology, audit)
    _require_compared(store, run)
    register = read_register(settings, topology.name)
    accepted = tuple(one for one in register.values() if one.state == "accepted")
    rows = AuditedRows(
        session=session,
        tables=tables,
        topology=topology,
        run=run,
        accepted=accepted,
        removed=removed_by_now(certified_runs(settings, topology.name)),
    )
    log = AuditedLog(session=session, settings=settings, topology=topology, run=run, accepted=accepted)
    outcome = Outcome()
    unexpected: dict[str, list[int]] = {}
    with data_docs_of(settings.reports, audit) as docs:

        def check(frame: DataFrame, suite: str, expectations: Sequence[Expectation] = (), table: str = "") -> None:
            name = f"{suite}-{table}" if table else suite
            every = [*expectations, *expectations_of(suites or suites_of(settings), suite, topology.name, table)]
            outcome.suites[name] = docs.checked(f"{topology.name}.{name}", frame, every)
            for one in outcome.suites[name]:
                if one.judged_as and one.unexpected is not None:
                    unexpected.setdefault(f"{one.judged_as} {table}".rstrip(), []).append(one.unexpected)

        # in the session itself: Great Expectations knows no other one
        suit(session, log.offsets)
        check(log.raw_log(), RAW_LOG)
        # what follows has a row for a batch or a result, not for each record
        suit(session, sum(DeltaTable(tables.output(one.table)).count() for one in topology.written))
        check(log.batch_ledger(), BATCH_LEDGER)
        for written in topology.written:
            check(rows.output(written), OUTPUTS, declared_columns(written), written.table)
        check(rows.reconciliation(), RECONCILIATION)
    outcome.disagreements = disagreements(unexpected, judged(topology, store, run, register))
    _keep(outcome, topology.name, audit, settings.reports)
    return outcome


def main(
    stream: Annotated[list[str], typer.Option(help="The audited stream; once for each --audit.")],
    audit: Annotated[list[str], typer.Option(help="The audit of the stream in the same place.")],
    suites: Annotated[Path | None, typer.Option(help="The folder of the suites; by default as it is set.")] = None,
) -> None:
    """Validate what audits looked at, and publish Data Docs. One stream after the other; the worst exit code counts."""
    if len(stream) != len(audit):
        raise Terminal(
            "streams and audits do not go in pairs",
            given=f"{len(stream)} streams, {len(audit)} audits",
            expected="one --audit for each --stream, in the same order",
            remedy="repeat both: --stream A --audit X --stream B --audit Y",
        )
    settings = Settings.from_environment(os.environ).acting_as("audit")
    topologies = declared(settings.topologies)
    # while the JVM starts
    Thread(target=great_expectations).start()
    session = spark_session(settings, "recount expectations", conf=OF_AN_AUDIT)
    try:
        pairs = [(topologies.topology(name), one) for name, one in zip(stream, audit, strict=True)]
        exit_code = tried(session, settings, pairs, suites)
    finally:
        session.stop()
    if exit_code:
        raise typer.Exit(exit_code)


def tried(
    session: SparkSession, settings: Settings, audits: Sequence[tuple[Topology, str]], suites: Path | None = None
) -> int:
    """Validate ``audits``, one after the other, and print what came of each; the worst exit code, see above."""
    codes = {0}
    for topology, audit in audits:
        try:
            outcome = validate(session, settings, topology, audit, suites)
        except Exception as error:
            # whatever it is, those of the others are tried
            _LOG.exception("%s: the expectations of audit %s could not be tried", topology.name, audit)
            print(f"{topology.name}: not validated: {error}")
            codes.add(EXIT_UNTRIED)
            continue
        print(*outcome.lines(topology.name), sep="\n", flush=True)
        print(expectations_page_of(settings.reports, topology.name, audit), flush=True)
        codes.add(outcome.exit_code)
    print(f"Data Docs, which load styles from the internet: {data_docs(settings.reports)}", flush=True)
    return max(codes)


def _complete(store: AuditStore, topology: Topology, audit: str) -> Run:
    for run in store.runs():
        if run.audit == audit:
            return run
    raise Terminal("no such audit", given=audit, expected=f"a complete audit of {topology.name}", remedy="audit first")


def _require_compared(store: AuditStore, run: Run) -> None:
    if any(run.counts.values()) and not store.has(COMPARED, run.audit):
        raise Terminal(
            "what the audit compared is kept no longer",
            given=run.audit,
            expected="an audit that is no older than verdicts in RECOUNT_KEEPING",
            remedy="validate a later audit, or audit again",
        )


def _keep(outcome: Outcome, stream: str, audit: str, reports: str) -> None:
    path, now_ms = outcome_of(reports, stream, audit), clock_ms()
    told = {**asdict(outcome), "lines": outcome.lines(stream), "exit_code": outcome.exit_code}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told, indent=2), encoding="utf-8")
    suites = {name: (outcome.told(name), checks) for name, checks in outcome.suites.items()}
    # without a script and an outside file: the Data Docs take their styles from servers of others
    page = rendered(
        "validation.html",
        stream=stream,
        audit=audit,
        at_ms=now_ms,
        suites=suites,
        disagreements=outcome.disagreements,
        painted=_PAINTED,
    )
    expectations_page_of(reports, stream, audit).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    run_job("expectations", main)
