"""``recount grace``: the grace advisor's advice on a terminal."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from recount.advise.grace_advice import Advice, LongerGrace, OperatorAdvice, StateInAll
from recount.advise.grace_judges import share
from recount.advise.workload import counted, sized
from recount.declare.registry import DEFAULT_MODULES, declared
from recount.runtime.settings import Settings
from recount.runtime.times import quantity, readable, told_time
from recount.tables.places import Tables

HEADS = ("grace", "late records let in", "results saved", "misses saved", "state", "results later by")


def advice_shown(advice: Advice) -> Iterator[RenderableType]:
    """Show what the advice is from; for each operator longer graces, the recommendation, and what is not known."""
    yield Text(f"stream {advice.stream}", style="bold")
    yield from _told(advice)
    for one in advice.operators:
        yield from _operator(one, advice)


def _told(advice: Advice) -> Iterator[str]:
    if advice.as_of is None:
        yield f"not ready: {advice.not_ready}"
        return
    since, more = "all that the stream has met", ""
    if advice.counted_since_ms is not None:
        since = f"those since {told_time(advice.counted_since_ms)}"
        more = "; retention may have removed older ones"
    recorded = told_time(advice.as_of["recorded_ms"])
    batch = f"{advice.as_of['generation']}/{advice.as_of['batch']}"
    yield f"late records: {since}, up to batch {batch}, recorded {recorded} UTC{more}"
    if advice.audits:
        open_ = (
            f"; of {advice.misses_untold:,} it is not known what would have saved them" if advice.misses_untold else ""
        )
        yield f"misses: {advice.misses:,} grace misses, found by audits so far: {advice.audits:,}{open_}"
    else:
        yield "misses: not known, the stream has not been audited"
    yield f"state: the estimate of what all operators keep at most, for {advice.given}"
    for title, rows in advice.not_by_grace.items():
        yield f"{quantity(rows, 'late record')} in {title}: it has no grace that could be longer"
    if advice.unattributed:
        yield f"{advice.unattributed:,} rows of the late ledger could be of several operators, or of none that there is"
    if not advice.operators:
        yield "no operator judges records by a grace"


def _operator(one: OperatorAdvice, advice: Advice) -> Iterator[RenderableType]:
    for number, title in zip(one.numbers, one.titles, strict=True):
        yield Text(f"{number}. {title}", style="bold")
    late = f"{quantity(one.records, 'late record')}"
    yield late if one.results is None else f"{late}, missing from {quantity(one.results, 'result')}"
    if one.steps:
        yield Padding(_table(one, advice), (0, 0, 0, 2))
    style = "green" if one.recommendation.added_ms else ""
    yield Text(f"{action_of(one)}: {one.recommendation.reason}", style=style)
    yield from (f"({note})" for note in one.notes)


def action_of(one: OperatorAdvice) -> str:
    """Return the recommendation in words."""
    added_ms = one.recommendation.added_ms
    return f"take {readable(added_ms)} more" if added_ms else "leave the grace"


def _table(one: OperatorAdvice, advice: Advice) -> Table:
    now = [readable(one.grace_ms), "", "", "", _state(advice.state), ""]
    rows = [now, *(cells_of(step, one, advice) for step in one.steps)]
    hidden = {"results saved"} if one.results is None else set()
    hidden |= set() if advice.audits else {"misses saved"}
    table = Table(box=None, padding=(0, 2, 0, 0))
    for head in HEADS:
        if head not in hidden:
            table.add_column(head, justify="right", overflow="fold")
    for row in rows:
        table.add_row(*(cell for head, cell in zip(HEADS, row, strict=True) if head not in hidden))
    return table


def cells_of(step: LongerGrace, one: OperatorAdvice, advice: Advice) -> list[str]:
    """Return the cells of ``step`` below ``HEADS``: what it saves and costs."""
    factor = step.state.rows / advice.state.rows if advice.state.rows else 1.0
    return [
        f"+ {readable(step.added_ms)}",
        f"{step.records:,} ({share(step.records, one.records)})",
        "" if step.results is None or not one.results else f"{step.results:,} ({share(step.results, one.results)})",
        f"{step.misses:,}",
        f"{_state(step.state)} (x {factor:.2g})",
        readable(step.delay_ms) if step.delay_ms else "nothing",
    ]


def _state(state: StateInAll) -> str:
    return f"{counted(state.rows)} rows, {sized(state.bytes)}"


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
    from recount.advise.grace_advice import advice
    from recount.advise.workload import workload
    from recount.runtime.console import print_whole

    root = data or Settings.from_environment(os.environ).data
    topology = declared(os.environ.get("RECOUNT_TOPOLOGIES", DEFAULT_MODULES)).topology(stream)
    given = workload(topology, rate=rate, keys=keys, record_bytes=record_bytes, trigger=trigger, late_by=late_by)
    found = advice(Tables(root), topology, given, time.time_ns() // 1_000_000, measures_rates=not rate)
    if as_json:
        typer.echo(json.dumps(found.document(), indent=1))
    else:
        print_whole(*advice_shown(found))
