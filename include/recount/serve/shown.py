"""An answer as a table for people."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from recount.core.durations import readable
from recount.core.instants import told_time
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.own_columns import BACKFILL_NUMBER, BATCH, GENERATION, ORIGIN, RESULT_TIME, REVISION
from recount.serve.answer import AUDITED, Answer

_TIMES = {WINDOW_START, WINDOW_END, RESULT_TIME}
_NOT_SHOWN = {GENERATION, BATCH, BACKFILL_NUMBER, ORIGIN}
_UNITS_MS = (86_400_000, 3_600_000, 60_000)
_HEADS = {RESULT_TIME: "time", REVISION: "revision", AUDITED: "audited"}


def table_of(answer: Answer) -> Table:
    """The rows."""
    names = [name for name in (answer.rows[0] if answer.rows else ()) if name not in _NOT_SHOWN]
    table = Table(box=SIMPLE)
    for name in names:
        table.add_column(_HEADS.get(name, name))
    for row in answer.rows:
        table.add_row(*(Text(_cell(name, row[name])) for name in names))
    return table


def told(answer: Answer) -> Iterator[str]:
    """What there is to say beside the rows, in lines."""
    if answer.moment is None:
        yield f"not ready: {answer.not_ready}"
        return
    more = answer.total - len(answer.rows)
    is_cut = more > 0 and AUDITED in answer.rows[0]
    yield f"rows: {answer.total:,}" + (f", of which the newest {len(answer.rows):,} are shown" if is_cut else "")
    said = answer.moment.document
    frontier_ms = said["frontier_ms"]
    frontier = "none yet" if frontier_ms is None else told_time(frontier_ms)
    yield (
        f"as of batch {said['generation']}/{said['batch']}, recorded {told_time(said['recorded_ms'])} UTC,"
        f" {_roughly(said['age_ms'])} before; frontier {frontier}"
    )
    if answer.judged is None:
        yield "never audited"
    else:
        judged = answer.judged.document(answer.moment)
        reach = (
            "up to this batch" if judged["audited"] else f"up to batch {judged['generation']}/{judged['batch']} only"
        )
        yield f"audited {reach}: {judged['outcome']} ({judged['audit']})"
    if answer.kept_since_ms is not None:
        yield f"rows of times before {told_time(answer.kept_since_ms)} may have been removed by retention"


def _roughly(age_ms: int) -> str:
    """In the largest unit of which there is one."""
    whole = next((one for one in _UNITS_MS if age_ms >= one), 1_000)
    return readable(age_ms // whole * whole)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return format(value, "f")
    text = told_time(value) if name in _TIMES else ("no", "yes")[value] if isinstance(value, bool) else str(value)
    # a terminal would obey control characters, and a value comes from whoever writes to the topic
    return text if text.isprintable() else repr(text)
