"""``recount findings``: what the audits of a stream found and what has become of it; ``accept`` takes one as it is."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from recount.audit.acceptances import accept_all
from recount.audit.register import read_register
from recount.audit.row_changes import sides_in_words
from recount.audit.told_findings import STATES, life_of, place_of, printable
from recount.core.errors import Terminal
from recount.core.finding import Finding
from recount.core.registry import declared
from recount.core.settings import Settings

findings = typer.Typer(add_completion=False, pretty_exceptions_enable=False, invoke_without_command=True)
Stream = Annotated[str | None, typer.Option("--stream", help="The audited stream.")]


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
