"""``recount audit``, ``recount explain`` and the entry point of spark_jobs/audit.py."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from recount.audit.audit_session import not_audited
from recount.audit.certificate.certificate_files import load
from recount.audit.certificate.summary import explained, summary
from recount.declare.registry import Declarations, declared, is_audited
from recount.declare.topology import Topology
from recount.runtime.console import EXIT_TERMINAL, EXIT_TRANSIENT, run_job
from recount.runtime.errors import Terminal, Transient
from recount.runtime.installation import require_extra
from recount.runtime.log_lines import write_log
from recount.runtime.settings import Settings
from recount.runtime.times import A_TIME, instant_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recount.audit.findings.finding_register import Interval
    from recount.audit.night import Outcome

EXIT_VIOLATION = 3
"""An audit found a violation."""
EXIT_WARNING = 4
"""Everything is there as the log says, but a declared limit of dead letters or late records was passed."""


def audit(
    stream: Annotated[list[str] | None, typer.Option("--stream", help="A topology to audit; may be repeated.")] = None,
    group: Annotated[str | None, typer.Option(help="Audit the topologies of this group of streams.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Audit every topology.")] = False,
    start: Annotated[str | None, typer.Option(help=f"Start of the data interval: {A_TIME}.")] = None,
    end: Annotated[str | None, typer.Option(help=f"Judge batches recorded before: {A_TIME}. Default: all.")] = None,
    source: Annotated[
        str, typer.Option(help="Where the raw log is read: kafka, archive, or auto, which takes from each what it has.")
    ] = "auto",
    audit_id: Annotated[
        str | None, typer.Option("--audit", help="Name of this audit, of each stream's. Default: a new one.")
    ] = None,
    from_the_beginning: Annotated[bool, typer.Option(help="Judge the whole log again, with no seed.")] = False,
    expectations: Annotated[
        bool, typer.Option("--expectations", help="Then let Great Expectations look at what was judged.")
    ] = False,
) -> None:
    """Recompute from the raw log, judge the outputs, issue a certificate of each stream.

    One Spark application audits all of them; one that is a violation, or cannot be judged, does not keep the others
    from being audited. The exit code is the first of these that holds: 3 a violation, 1 an audit that could not judge
    and a human must act, 75 one that may succeed later, 4 warnings, 0 a match of all. Of expectations it counts only
    where all match: 5 they and an audit disagree, 3 one failed, 1 they could not be tried.
    """
    from recount.audit.audit_session import OF_AN_AUDIT, java_options_for
    from recount.audit.cut.auditable import AuditRequest
    from recount.audit.findings.finding_register import source_named
    from recount.audit.night import audited_together, new_audit_id
    from recount.tables.spark_session import spark_session

    where = source_named(source)
    interval = _interval(start, end)
    settings = Settings.from_environment(os.environ).acting_as("audit")
    write_log(settings.log_format)
    topologies = _topologies(declared(settings.topologies), stream or [], group, every=every)
    request = AuditRequest(
        audit=audit_id or new_audit_id(),
        interval=interval,
        source=where,
        from_the_beginning=from_the_beginning,
    )
    name = topologies[0].name if len(topologies) == 1 else group or f"{len(topologies)} streams"
    outcomes: list[Outcome] = []
    started: list[SparkSession] = []
    if expectations:
        from recount.audit.expectations.validation import great_expectations, tried

        require_extra("audit")
        # while the JVM starts
        Thread(target=great_expectations).start()
    with ExitStack() as stack:

        def application(offsets: int) -> SparkSession:
            session = spark_session(
                settings, f"recount audit {name}", java_options=java_options_for(offsets), conf=OF_AN_AUDIT
            )
            stack.callback(session.stop)
            started.append(session)
            return session

        for outcome in audited_together(settings, topologies, request, application):
            if outcome.refusal and len(topologies) == 1:
                raise outcome.refusal
            _tell(outcome)
            outcomes.append(outcome)
        exit_code = _exit_code(outcomes)
        judged = {outcome.stream for outcome in outcomes if outcome.certificate}
        if expectations and judged:
            found = [(topology, request.audit) for topology in topologies if topology.name in judged]
            failed = tried(started[0], settings, found)
            if exit_code in (0, EXIT_WARNING):
                exit_code = failed or exit_code
    if exit_code:
        raise typer.Exit(exit_code)


def _topologies(
    declarations: Declarations, streams: Sequence[str], group: str | None, *, every: bool
) -> list[Topology]:
    """Return the topologies that the options name; raises ``Terminal`` unless they do it in exactly one way."""
    given = [name for name, is_given in (("--stream", streams), ("--group", group), ("--all", every)) if is_given]
    if len(given) != 1:
        raise Terminal(
            "what shall be audited?",
            given=" and ".join(given) or "nothing",
            expected="--stream NAME, once or more, or --group NAME, or --all",
            remedy="recount audit --stream NAME",
        )
    if streams:
        return [declarations.topology(name) for name in dict.fromkeys(streams)]
    given_streams = declarations.streams.values() if group is None else declarations.group(group).streams
    found = [one for one in given_streams if is_audited(one)]
    if not found:
        raise Terminal(
            "nothing to audit" if group is None else f"nothing to audit in group {group}",
            given="archives, or topologies of actions alone",
            expected="a topology that writes records",
            remedy="an archive is judged where an audit reads it: recount audit --source archive",
        )
    return found


def _tell(outcome: Outcome) -> None:
    document = outcome.document
    if document is None:
        line = not_audited(outcome.stream, str(outcome.refusal), final=isinstance(outcome.refusal, Terminal))
        Console(stderr=True).print(line, soft_wrap=True, markup=False)
    else:
        Console(markup=False).print(summary(document), outcome.certificate, sep="\n", soft_wrap=True)


def _exit_code(outcomes: Sequence[Outcome]) -> int:
    refusals = [one.refusal for one in outcomes if one.refusal]
    documents = [one.document or {} for one in outcomes]
    if any(document.get("outcome") == "violation" for document in documents):
        return EXIT_VIOLATION
    if refusals:
        return EXIT_TRANSIENT if all(isinstance(one, Transient) for one in refusals) else EXIT_TERMINAL
    return EXIT_WARNING if any(document.get("warnings") for document in documents) else 0


def explain(
    certificate: Annotated[Path, typer.Argument(help="The JSON file of a certificate.")],
    key: Annotated[str | None, typer.Option(help="Only this key.")] = None,
    window: Annotated[str | None, typer.Option(help=f"Only the window that starts here: {A_TIME}.")] = None,
) -> None:
    """Say of every difference and every grace miss what is wrong, why, and which offsets are behind it."""
    Console(markup=False).print(
        explained(load(certificate), key, None if window is None else instant_ms(window)), soft_wrap=True
    )


def audit_job() -> None:
    """The command line of spark_jobs/audit.py."""
    run_job("audit", audit)


def _interval(start: str | None, end: str | None) -> Interval:
    """Return the interval of ``--start`` and ``--end``. They may be equal: Airflow has data intervals of no length."""
    from recount.audit.findings.finding_register import Interval

    start_ms = None if start is None else instant_ms(start)
    end_ms = None if end is None else instant_ms(end)
    if start_ms is not None and end_ms is not None and start_ms > end_ms:
        raise Terminal(
            "the start of the data interval is after its end",
            given=f"--start {start}, --end {end}",
            expected="a start that is not after the end",
            remedy="exchange the two, or leave --end out to judge all batches",
        )
    return Interval(start_ms=start_ms, end_ms=end_ms)
