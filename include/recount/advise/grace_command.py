"""``recount grace``: the grace advisor's advice on a terminal."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from recount.advise.grace_advice import advice, share
from recount.advise.workload import counted, sized, worded, workload
from recount.declare.registry import DEFAULT_MODULES, declared
from recount.runtime.console import print_whole
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms, quantity, readable, told_time
from recount.tables.places import Tables

Figures = Mapping[str, Any]
HEADS = ("grace", "late records let in", "results saved", "misses saved", "state", "results later by")


def advice_shown(found: Figures) -> Iterator[RenderableType]:
    """Show what the advice is from; for each operator longer graces, the recommendation, and what is not known."""
    yield Text(f"stream {found['stream']}", style="bold")
    if found["as_of"] is None:
        yield f"not ready: {found['not_ready']}"
        return
    as_of, since, more = found["as_of"], "all that the stream has met", ""
    if found["counted_since_ms"] is not None:
        since = f"those since {told_time(found['counted_since_ms'])}"
        more = "; retention may have removed older ones"
    batch, recorded = f"{as_of['generation']}/{as_of['batch']}", told_time(as_of["recorded_ms"])
    yield f"late records: {since}, up to batch {batch}, recorded {recorded} UTC{more}"
    misses = "not known, the stream has not been audited"
    if found["audits"]:
        misses = f"{found['misses']:,} grace misses, found by audits so far: {found['audits']:,}"
        untold = found["misses_untold"]
        misses += f"; of {untold:,} it is not known what would have saved them" if untold else ""
    yield f"misses: {misses}"
    yield f"state: the estimate of what all operators keep at most, for {worded(found['assumed'])}"
    for title, rows in found["not_by_grace"].items():
        yield f"{quantity(rows, 'late record')} in {title}: it has no grace that could be longer"
    if unknown := found["unattributed"]:
        yield f"{unknown:,} rows of the late ledger could be of several operators, or of none that there is"
    if not found["operators"]:
        yield "no operator judges records by a grace"
    for one in found["operators"]:
        for number, title in zip(one["numbers"], one["titles"], strict=True):
            yield Text(f"{number}. {title}", style="bold")
        yield late_of(one)
        if one["steps"]:
            yield Padding(_table(one, found), (0, 0, 0, 2))
        yield Text(recommendation_of(one), style="green" if one["recommendation"]["added_ms"] else "")
        yield from (f"({note})" for note in one["notes"])


def late_of(one: Figures) -> str:
    late = quantity(one["records"], "late record")
    return late if one["results"] is None else f"{late}, missing from {quantity(one['results'], 'result')}"


def recommendation_of(one: Figures) -> str:
    added_ms, reason = one["recommendation"]["added_ms"], one["recommendation"]["reason"]
    return f"{f'take {readable(added_ms)} more' if added_ms else 'leave the grace'}: {reason}"


def _table(one: Figures, found: Figures) -> Table:
    now = [readable(one["grace_ms"]), "", "", "", _state(found["state"]), ""]
    hidden = {"results saved"} if one["results"] is None else set()
    hidden |= set() if found["audits"] else {"misses saved"}
    table = Table(box=None, padding=(0, 2, 0, 0))
    for head in HEADS:
        if head not in hidden:
            table.add_column(head, justify="right", overflow="fold")
    for row in [now, *(cells_of(step, one, found) for step in one["steps"])]:
        table.add_row(*(cell for head, cell in zip(HEADS, row, strict=True) if head not in hidden))
    return table


def cells_of(step: Figures, one: Figures, found: Figures) -> list[str]:
    """Return the cells of ``step`` below ``HEADS``: what it saves and costs."""
    now = found["state"]["rows"]
    factor = step["state"]["rows"] / now if now else 1.0
    results = f"{step['results']:,} ({share(step['results'], one['results'])})" if one["results"] else ""
    return [
        f"+ {readable(step['added_ms'])}",
        f"{step['records']:,} ({share(step['records'], one['records'])})",
        results,
        f"{step['misses']:,}",
        f"{_state(step['state'])} (x {factor:.2g})",
        readable(step["delay_ms"]) if step["delay_ms"] else "nothing",
    ]


def _state(state: Figures) -> str:
    return f"{counted(state['rows'])} rows, {sized(state['bytes'])}"


def grace(
    stream: Annotated[str, typer.Argument(help="The name of the stream, as declared.")],
    rate: Annotated[
        list[str],
        typer.Option(help="Records a second of a source topic, instead of those measured; NAME=NUMBER for one alone."),
    ] = [],  # noqa: B006
    keys: Annotated[
        list[str], typer.Option(help="How many different keys, or 'unique'; NAME=NUMBER for one alone.")
    ] = [],  # noqa: B006
    record_bytes: Annotated[float, typer.Option(help="Bytes of a record's value.")] = 100.0,
    trigger: Annotated[str, typer.Option(help="Time that a batch spans.")] = "1 s",
    late_by: Annotated[str, typer.Option(help="How far the slowest partition is behind the fastest.")] = "0 s",
    data: Annotated[str | None, typer.Option(help="Root of its Delta tables. Default: RECOUNT_DATA.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a longer grace would have saved of what came too late, and what it would cost.

    No broker has to run. That a stream has nothing to tell yet is an answer: the exit code is 0.
    """
    root = data or Settings.from_environment(os.environ).data
    topology = declared(os.environ.get("RECOUNT_TOPOLOGIES", DEFAULT_MODULES)).topology(stream)
    given = workload(topology, rate=rate, keys=keys, record_bytes=record_bytes, trigger=trigger, late_by=late_by)
    found = advice(Tables(root), topology, given, clock_ms(), measures_rates=not rate)
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    else:
        print_whole(*advice_shown(found))
