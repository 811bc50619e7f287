"""Findings that a person accepts, in a table of their own, and the command ``recount findings``.

No audit writes the table, and no acceptance is ever removed. The command lists what the audits of a stream found and
what has become of it; ``accept`` takes a finding as it is.
"""

from __future__ import annotations

import os
from typing import Annotated

import polars as pl
import typer
from deltalake import write_deltalake
from rich.console import Console
from rich.text import Text

from recount.audit.certificate.summary import STATES, life_of, place_of, printable, sides_in_words
from recount.audit.findings.finding_register import read_register
from recount.certificate.finding import Finding
from recount.declare.registry import declared
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms
from recount.tables.places import Tables

findings = typer.Typer(add_completion=False, pretty_exceptions_enable=False, invoke_without_command=True)
Stream = Annotated[str | None, typer.Option("--stream", help="The audited stream.")]


def accept(settings: Settings, stream: str, finding: str, *, by: str, reason: str) -> Finding:
    """Accept the open ``finding`` of ``stream`` as its last audit saw it; returns it.

    Raises ``Terminal`` without a name or a reason, and when there is no such finding or it is closed already.
    """
    [accepted] = accept_all(settings, stream, [finding], by=by, reason=reason)
    return accepted


def accept_all(settings: Settings, stream: str, findings: list[str], *, by: str, reason: str) -> list[Finding]:
    """Accept all of ``findings`` or, when one of them cannot be accepted, none."""
    for what, given in (("name", by), ("reason", reason)):
        if not given.strip():
            raise Terminal(
                f"no {what}",
                given=given,
                expected=f"the {what} of who accepts" if what == "name" else "why the difference may stay",
                remedy="recount findings accept --finding ID --by NAME --reason TEXT",
            )
    if not findings:
        raise Terminal("no finding", given=findings, expected="at least one id", remedy=_list(stream))
    known = read_register(settings, stream)
    wanted = [_open(known.get(finding), finding, stream) for finding in dict.fromkeys(findings)]
    at_ms = clock_ms()
    rows = [
        {"finding": one.id, "audit": one.last_audit, "by": by.strip(), "reason": reason.strip(), "at_ms": at_ms}
        for one in wanted
    ]
    write_deltalake(Tables(settings.data).acceptances(stream), pl.DataFrame(rows), mode="append")
    return wanted


def _open(found: Finding | None, finding: str, stream: str) -> Finding:
    if found is None:
        raise Terminal("no such finding", given=finding, expected=f"a finding of {stream}", remedy=_list(stream))
    if found.state != "open":
        taken = found.acceptance
        given = f"accepted by {taken.by}: {taken.reason}" if taken else f"repaired, as {found.repaired_audit} says"
        raise Terminal(
            f"finding {finding} is closed", given=given, expected="an open finding", remedy="nothing is left to do"
        )
    return found


def _list(stream: str) -> str:
    return f"recount findings --stream {stream}"


@findings.callback()
def list_findings(
    context: typer.Context,
    stream: Stream = None,
    every: Annotated[bool, typer.Option("--all", help="Repaired ones too.")] = False,
) -> None:
    """List the findings of a stream: the open ones, which keep its audits at violation, and the accepted ones."""
    if context.invoked_subcommand:
        return
    settings = Settings.from_environment(os.environ)
    name = _declared(settings, stream)
    known = read_register(settings, name).values()
    shown = [one for state in STATES for one in known if one.state == state and (every or state != "repaired")]
    for one in shown:
        Console().print(*_told(one), sep="\n", soft_wrap=True, end="\n\n")
    counts = ", ".join(f"{sum(one.state == state for one in known)} {state}" for state in STATES)
    print(f"{name}: {counts}")


@findings.command("accept")
def accept_finding(
    finding: Annotated[list[str], typer.Option(help="The id of a finding, as the list has it; may be repeated.")],
    by: Annotated[str, typer.Option(help="The name of who accepts it.")],
    reason: Annotated[str, typer.Option(help="Why the difference may stay.")],
    stream: Stream = None,
) -> None:
    """Accept open findings as they are now: from the next audit on they are listed with who and why, no violation.

    All that are named, or none where one of them cannot be accepted.
    """
    settings = Settings.from_environment(os.environ)
    name = _declared(settings, stream)
    for accepted in accept_all(settings, name, finding, by=by, reason=reason):
        Console().print(*_told(accepted)[1:], sep="\n", soft_wrap=True)
        print(f"finding {accepted.id} of {name} accepted by {by.strip()}: {reason.strip()}")


def _declared(settings: Settings, stream: str | None) -> str:
    if stream is None:
        raise Terminal("no stream", given=None, expected="its name", remedy="recount findings --stream NAME")
    declarations = declared(settings.topologies)
    if stream not in declarations.streams and read_register(settings, stream):
        return stream  # what audits of a stream have found stays on record when its declaration goes
    return declarations.topology(stream).name


def _told(one: Finding) -> list[Text]:
    found = one.difference
    return [
        Text(printable(f"{one.id} {life_of(one.document())}"), style="bold red" if one.state == "open" else "bold"),
        Text(printable(f"  {found.verdict}: {found.kind}, {found.place}{place_of(one.document())}")),
        Text("  expected {}\n  actual   {}".format(*map(printable, sides_in_words(found.expected, found.actual)))),
        Text(printable(f"  cause    {found.cause}")),
    ]
