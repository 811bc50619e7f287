"""``recount lens``: how other engines would have answered for a stream here, as tables for people."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from recount.advise.lens_answer import COUNTS, FIRST, Figures, LensAnswer, looked_at
from recount.advise.lens_log import Modelled, records_of, span_of
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.registry import declared
from recount.declare.topology import Topology
from recount.kafka.connection import Connection
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.runtime.times import A_TIME, instant_ms, quantity, told_time
from recount.tables.batch_proofs import Proofs
from recount.tables.places import Tables

RESULT_HEADS = ("key", "window", "Recount", "fewest dropped", "most dropped", "records missing")


def lens(
    stream: Annotated[str, typer.Argument(help="The name of the stream, as declared.")],
    start: Annotated[str | None, typer.Option(help=f"Ask about batches recorded from this time on: {A_TIME}.")] = None,
    end: Annotated[str | None, typer.Option(help=f"Ask about batches recorded before: {A_TIME}. Default: all.")] = None,
    batch_records: Annotated[
        int | None,
        typer.Option(min=1, help="Let the others read in batches of so many records, not in the stream's own."),
    ] = None,
    first: Annotated[int, typer.Option(min=0, help="How many records and results to list.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what Kafka Streams and Spark Structured Streaming would have answered on the log that a stream has read.

    Reads the raw log and the batch ledger, writes nothing, and runs neither of them. That they differ is an answer: the
    exit code is 0.
    """
    from recount.runtime.console import print_whole

    settings = Settings.from_environment(os.environ).acting_as("audit")
    topology = declared(settings.topologies).topology(stream)
    start_ms, end_ms = (None if text is None else instant_ms(text) for text in (start, end))
    answer = lens_of(settings, topology, start_ms=start_ms, end_ms=end_ms, batch_records=batch_records, first=first)
    if as_json:
        print(json.dumps(answer.document(), ensure_ascii=False))
        return
    print_whole(*told(answer.said), cost(**answer.said["cost"]))


def told(said: Figures) -> Iterator[str | Table]:
    """All of an answer but its cost."""
    yield from heading(said)
    totals = Table("", *(engine_name(engine) for engine in said["engines"]), box=SIMPLE)
    for head, name in COUNTS.items():
        totals.add_row(head, *(between(engine[name]) for engine in said["engines"]))
    for column in totals.columns[1:]:
        column.justify = "right"
    yield totals
    for engine in said["engines"]:
        yield f"{engine_name(engine)}, assumed:"
        yield from (f"- {sentence}" for sentence in engine["assumed"])
        if engine["results"]:
            yield _table(RESULT_HEADS, result_cells(engine))
        if engine["records"]:
            rows = (
                (one["place"], one["key"], told_time(one["time_ms"]), "certainly" if one["is_certain"] else "possibly")
                for one in engine["records"]
            )
            yield _table(("record", "key", "time", "dropped"), rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Escape control characters: a terminal would obey them, and keys come from anybody who writes to the topic."""
    table = Table(*heads, box=SIMPLE)
    for row in rows:
        cells = (str(cell).split("\n") for cell in row)
        shown = ("\n".join(line if line.isprintable() else repr(line) for line in lines) for lines in cells)
        table.add_row(*(Text(text, overflow="fold") for text in shown))
    return table


def between(number: Mapping[str, int]) -> str:
    """A number between two, inclusive; the log says it exactly where they are the same."""
    few, many = f"{number['least']:,}", f"{number['most']:,}"
    return few if few == many else f"{few} to {many}"


def engine_name(engine: Figures) -> str:
    """The name of the engine as its makers write it: ``kafka-streams`` is Kafka Streams."""
    return str(engine["engine"]).replace("-", " ").title()


def told_counts(engine: Figures) -> str:
    return "; ".join(f"{head} {between(engine[name])}" for head, name in COUNTS.items())


def heading(said: Figures) -> Iterator[str]:
    """Yield lines that say what was looked at."""
    start_ms, end_ms, again = (said[name] for name in ("start_ms", "end_ms", "batch_records"))
    cut = "" if again is None else f", cut again at {quantity(again, 'record')}"
    since = "the first batch" if start_ms is None else told_time(start_ms)
    until = "the last batch" if end_ms is None else f"before {told_time(end_ms)}"
    yield f"{said['stream']}: {said['windows']}; recorded from {since} to {until}"
    yield (
        f"{quantity(said['records'], 'record')} in {quantity(said['results'], 'result')};"
        f" late by Recount itself: {said['late']:,};"
        f" {quantity(said['batches'], 'batch', 'batches')}{cut}"
    )


def cost(read: int, seconds: float) -> str:
    rate = read / seconds if seconds else 0
    return f"{quantity(read, 'record')} read and judged in {seconds:.1f} s, {rate:,.0f} a second"


def result_cells(engine: Figures) -> Iterator[Sequence[str]]:
    """The first results that the engine lacks or has otherwise, below ``RESULT_HEADS``; cells can have lines."""
    for one in engine["results"]:
        window = "\n".join(told_time(one[bound]) for bound in (WINDOW_START, WINDOW_END))
        values = ["not read"] * 3
        if one["ours"] is not None:
            theirs = (one[f"theirs_at_{name}_dropped"] for name in ("least", "most"))
            values = [_row(one["ours"]), *("\n".join(map(_row, rows)) or "lost" for rows in theirs)]
        yield [str(one["key"]), window, *values, "\n".join(one["dropped"])]


def _row(row: Figures) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.items() if name not in (WINDOW_START, WINDOW_END))


def lens_of(
    settings: Settings,
    topology: Topology,
    *,
    start_ms: int | None = None,
    end_ms: int | None = None,
    batch_records: int | None = None,
    first: int = FIRST,
    most_records: int | None = None,
) -> LensAnswer:
    """Return the answers of the other engines on the batches that were recorded in the interval.

    With ``batch_records`` they are taken to have read in batches of so many. Raises ``NoModel`` for a topology of which
    there is no model, ``Terminal`` where the interval has no records, where the log is not there any more, and where
    more than ``most_records`` would have to be read.
    """
    modelled, tables = Modelled.of(topology), Tables(settings.data)
    proofs = Proofs(state=tables.state(topology.name), moved_to=tables.ledger(topology.name))
    span = span_of(modelled, (entry.proof for entry in proofs.newest_first()), start_ms, end_ms)
    to_read = int(span.parts["records"].sum())
    if most_records is not None and to_read > most_records:
        raise Terminal.of(
            "lens-reads-too-much",
            given=f"{to_read:,}: sessions are read from the beginning of the log",
            most=most_records,
            name=topology.name,
        )
    if batch_records is not None:
        span = span.in_batches_of(batch_records)
    log = records_of(span, Connection.of(settings), tables)
    return looked_at(modelled, span, log, start_ms=start_ms, end_ms=end_ms, batch_records=batch_records, first=first)
