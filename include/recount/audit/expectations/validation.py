"""The suites of ``expectations/`` put to what an audit looked at, and compared with what it found; with Data Docs.

Run as ``python -m recount.audit.expectations.validation --stream S --audit ID``, with several pairs of these for
several streams in one Spark application. Exit code 0: all hold; 3: an expectation failed, and the judge does not deny
it; 5: the two disagree; 1: a stream could not be validated.

Great Expectations has a file context in ``<reports>/gx`` and a checkpoint for each suite. One process at a time is in
the folder. Great Expectations is imported when it is opened, for that takes seconds.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from typing import Annotated, Any

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
    rendered,
)
from recount.audit.cut.in_force import certified_runs, removed_by_now
from recount.audit.expectations.audited_frames import AuditedLog, AuditedRows
from recount.audit.expectations.suites import (
    BATCH_LEDGER,
    OUTPUTS,
    QUERY,
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
from recount.recompute.raw_log import once
from recount.runtime.console import run_job
from recount.runtime.errors import Terminal
from recount.runtime.installation import missing_extras_named
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
    store = AuditStore(tables, topology.name)
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


EXAMPLES = 20
_SOURCE = "audited"


@dataclass(frozen=True, kw_only=True)
class Checked:
    """One expectation of a suite and what came of it; ``unexpected`` rows are None where it could not be evaluated.

    ``column`` names the columns that it is about, empty where it is about rows; ``type`` is Great Expectations' name of
    it. ``examples`` are the first rows that a query found, or what went wrong.
    """

    expectation: str
    column: str = ""
    type: str = ""
    judged_as: str | None
    holds: bool
    is_warning: bool
    unexpected: int | None
    examples: Sequence[str]


class DataDocs:
    """The context while it is open, for one run: an audit."""

    def __init__(self, context: Any, gx: Any, audit: str) -> None:
        self._context = context
        self._gx = gx
        self._audit = audit
        # without persist: Spark would go on to see a Delta table as it was when delta-rs writes to it
        self._source = context.data_sources.add_or_update_spark(_SOURCE, persist=False)

    def checked(self, name: str, frame: DataFrame, expectations: Sequence[Expectation]) -> list[Checked]:
        """Put ``expectations`` to ``frame`` as the checkpoint ``name``, whose action updates the Data Docs.

        The frame is computed once.
        """
        gx, context = self._gx, self._context
        suite = context.suites.add_or_update(gx.ExpectationSuite(name=name, expectations=list(expectations)))
        batch = self._source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("whole")
        definition = gx.ValidationDefinition(name=name, data=batch, suite=suite)
        checkpoint = gx.Checkpoint(
            name=name,
            validation_definitions=[context.validation_definitions.add_or_update(definition)],
            actions=[gx.checkpoint.UpdateDataDocsAction(name="update data docs")],
            result_format="BASIC",  # more would count values, or bring every unexpected one to this process
        )
        run = gx.RunIdentifier(run_name=self._audit)
        rows = once(frame)
        found = context.checkpoints.add_or_update(checkpoint).run(batch_parameters={"dataframe": rows}, run_id=run)
        [result] = found.run_results.values()
        return [_checked(one, rows) for one in result.results]


@contextmanager
def data_docs_of(reports: str, audit: str) -> Iterator[DataDocs]:
    """The Data Docs for a new run ``audit``."""
    gx = great_expectations()
    folder = Path(reports) / "gx"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        context: Any = gx.get_context(mode="file", project_root_dir=reports)
        context.variables.progress_bars = {"globally": False, "metric_calculations": False}
        yield DataDocs(context, gx, audit)


def great_expectations() -> Any:
    """The library, whose import takes seconds."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    # it would tell of every field of an expectation that it does not know
    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    with missing_extras_named():
        import great_expectations as gx
    return gx


def data_docs(reports: str) -> Path:
    """The first page of the Data Docs."""
    return Path(reports) / "gx" / "uncommitted" / "data_docs" / "local_site" / "index.html"


def _checked(result: Any, frame: DataFrame) -> Checked:
    configuration = result.expectation_config
    holds, found = bool(result.success), result.result or {}
    failure = _failure(result.exception_info or {})
    is_query = QUERY in configuration.kwargs
    unexpected = found.get("observed_value" if is_query else "unexpected_count")
    examples = [] if holds else [failure] if failure else _examples(frame, configuration.kwargs) if is_query else []
    meta = configuration.meta or {}
    notes = meta.get("notes")
    said = notes.get("content") if isinstance(notes, Mapping) else notes
    columns = configuration.kwargs.get("column_list") or [configuration.kwargs.get("column")]
    return Checked(
        column=", ".join(map(str, filter(None, columns))),
        type=str(configuration.type),
        expectation=str((said[0] if isinstance(said, list) and said else said) or configuration.type),
        judged_as=meta.get("judged_as"),
        holds=holds,
        is_warning=str(getattr(configuration.severity, "value", configuration.severity)) != "critical",
        unexpected=unexpected if isinstance(unexpected, int) else (0 if holds else None),
        examples=examples,
    )


def _failure(told: Mapping[str, Any]) -> str | None:
    """Why the expectation could not be evaluated: said of it, or of each of its metrics."""
    each = [told, *(one for one in told.values() if isinstance(one, Mapping))]
    return next((str(one["exception_message"]) for one in each if one.get("exception_message")), None)


def _examples(frame: DataFrame, given: Any) -> list[str]:
    """The first rows that the query of an expectation finds."""
    view = "recount_examples"
    frame.createOrReplaceTempView(view)
    rows = frame.sparkSession.sql(given[QUERY].format(batch=view)).limit(EXAMPLES).collect()
    return [str(row.asDict()) for row in rows]


if __name__ == "__main__":
    run_job("expectations", main)
