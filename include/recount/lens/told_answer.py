"""What the other engines would have answered, as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from recount.core.instants import told_time
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.quantities import quantity
from recount.lens.lens_answer import EngineAnswer, LensAnswer

_NAMES = {"kafka-streams": "Kafka Streams", "structured-streaming": "Structured Streaming"}
_COUNTS = {
    "records dropped": "dropped",
    "of these counted by Recount": "dropped_of_ours",
    "results lost": "lost",
    "results changed or lost": "changed",
    "results that Recount has not": "added",
}
RESULT_HEADS = ("key", "window", "Recount", "fewest dropped", "most dropped", "records missing")


def told(answer: LensAnswer) -> Iterator[str | Table]:
    """All of ``answer`` but its cost."""
    yield from heading(answer)
    yield totals(answer)
    for engine in answer.engines:
        yield from details(engine)


def totals(answer: LensAnswer) -> Table:
    """The counts of each engine, side by side."""
    table = Table(box=SIMPLE)
    table.add_column("")
    for engine in answer.engines:
        table.add_column(engine_name(engine), justify="right")
    for head, name in _COUNTS.items():
        table.add_row(head, *(str(getattr(engine, name)) for engine in answer.engines))
    return table


def engine_name(engine: EngineAnswer) -> str:
    """The name of the engine as its makers write it."""
    return _NAMES[engine.engine]


def told_counts(engine: EngineAnswer) -> str:
    """The counts of one engine in a line."""
    return "; ".join(f"{head} {getattr(engine, name)}" for head, name in _COUNTS.items())


def heading(answer: LensAnswer) -> Iterator[str]:
    """What was looked at, in lines."""
    cut = "" if answer.batch_records is None else f", cut anew at {quantity(answer.batch_records, 'record')}"
    since = "the first batch" if answer.start_ms is None else told_time(answer.start_ms)
    until = "the last batch" if answer.end_ms is None else f"before {told_time(answer.end_ms)}"
    yield f"{answer.stream}: {answer.windows}; recorded from {since} to {until}"
    yield (
        f"{quantity(answer.records, 'record')} in {quantity(answer.results, 'result')};"
        f" late by Recount itself: {answer.late:,};"
        f" {quantity(answer.batches, 'batch', 'batches')}{cut}"
    )


def details(engine: EngineAnswer) -> Iterator[str | Table]:
    """What is assumed of one engine, and the first of what it would have dropped and answered."""
    yield f"{engine_name(engine)}, assumed:"
    yield from (f"- {sentence}" for sentence in engine.assumed)
    if engine.results:
        yield _results(engine)
    if engine.records:
        yield _records(engine)


def cost(answer: LensAnswer) -> str:
    """How much was read, and how long it took."""
    rate = answer.read / answer.seconds if answer.seconds else 0
    return f"{quantity(answer.read, 'record')} read and judged in {answer.seconds:.1f} s, {rate:,.0f} a second"


def result_cells(engine: EngineAnswer) -> Iterator[Sequence[str]]:
    """The first results that the engine lacks or has otherwise, below ``RESULT_HEADS``; cells can have lines."""
    for one in engine.results:
        window = f"{told_time(one.window_start)}\n{told_time(one.window_end)}"
        theirs = (one.theirs_at_least_dropped, one.theirs_at_most_dropped)
        unknown = ["not read"] * 3 if one.ours is None else None
        values = unknown or [_row(one.ours or {}), *(_rows(each) for each in theirs)]
        yield [str(one.key), window, *values, "\n".join(one.dropped)]


def _results(engine: EngineAnswer) -> Table:
    table = Table(*RESULT_HEADS, box=SIMPLE)
    for cells in result_cells(engine):
        table.add_row(*map(_text, cells))
    return table


def _records(engine: EngineAnswer) -> Table:
    table = Table("record", "key", "time", "dropped", box=SIMPLE)
    for one in engine.records:
        surely = "certainly" if one.is_certain else "possibly"
        table.add_row(*map(_text, (one.place, one.key, told_time(one.time_ms), surely)))
    return table


def _rows(rows: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(map(_row, rows)) or "lost"


def _row(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.items() if name not in (WINDOW_START, WINDOW_END))


def _text(value: object) -> Text:
    """A terminal would obey control characters, and keys come from whoever writes to the topic."""
    text = str(value)
    return Text("\n".join(line if line.isprintable() else repr(line) for line in text.split("\n")), overflow="fold")
