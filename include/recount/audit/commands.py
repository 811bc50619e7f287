"""``recount audit``, ``recount explain`` and the entry point of spark_jobs/audit.py."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from recount.audit.certificate import load
from recount.audit.summary import explained, summary
from recount.core.errors import Terminal
from recount.core.registry import declared
from recount.core.settings import Settings

EXIT_VIOLATION = 3
"""The audit ran and found a violation; other exit codes mean that it could not judge."""
EXIT_WARNING = 4
"""Everything is there as the log says, but a declared limit of dead letters or late records was passed."""

_TIME = "a time in ISO 8601, UTC unless it has an offset"


def audit(
    stream: Annotated[str, typer.Option("--stream", help="The name of the topology to audit.")],
    start: Annotated[str | None, typer.Option(help=f"Start of the data interval: {_TIME}.")] = None,
    end: Annotated[str | None, typer.Option(help=f"Judge batches recorded before: {_TIME}. Default: all.")] = None,
    source: Annotated[str, typer.Option(help="Where the raw log is read: kafka or archive.")] = "kafka",
    audit_id: Annotated[str | None, typer.Option("--audit", help="Name of this audit. Default: a new one.")] = None,
    from_the_beginning: Annotated[bool, typer.Option(help="Judge the whole log again, with no seed.")] = False,
) -> None:
    """Recompute from the raw log, judge the outputs, issue a certificate. Exit code 3 says violation, 4 warnings."""
    from recount.audit.findings import Interval
    from recount.audit.nightly import audited
    from recount.sessions import spark_session

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if source not in ("kafka", "archive"):
        raise Terminal("no such source", given=source, expected="kafka or archive", remedy="--source kafka")
    settings = Settings.from_environment(os.environ)
    topology = declared(settings.topologies).topology(stream)
    session = spark_session(settings, f"recount audit {stream}")
    try:
        done = audited(
            session,
            settings,
            topology,
            audit=audit_id,
            interval=Interval(start_ms=_milliseconds(start), end_ms=_milliseconds(end)),
            source="archive" if source == "archive" else "kafka",
            from_the_beginning=from_the_beginning,
        )
    finally:
        session.stop()
    Console().print(summary(load(done.certificate)), done.certificate, sep="\n", soft_wrap=True)
    if done.findings.outcome == "violation":
        raise typer.Exit(EXIT_VIOLATION)
    if load(done.certificate).get("warnings"):
        raise typer.Exit(EXIT_WARNING)


def explain(
    certificate: Annotated[Path, typer.Argument(help="The JSON file of a certificate.")],
    key: Annotated[str | None, typer.Option(help="Only this key.")] = None,
    window: Annotated[int | None, typer.Option(help="Only the window that starts here, ms since the epoch.")] = None,
) -> None:
    """Say of every difference and every grace miss what is wrong, why, and which offsets are behind it."""
    Console().print(explained(load(certificate), key, window), soft_wrap=True)


def audit_job() -> None:
    """The command line of spark_jobs/audit.py."""
    typer.run(audit)


def _milliseconds(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise Terminal("no time", given=text, expected=_TIME, remedy="write 2026-11-21T01:00:00Z") from error
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000)
