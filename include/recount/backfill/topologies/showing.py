"""What a backfill of any topology would correct, for whoever decides on it."""

from __future__ import annotations

import json
from collections.abc import Collection
from decimal import Decimal

from pyspark.sql import SparkSession
from rich.table import Table

from recount.audit.row_changes import change_in_words
from recount.audit.store import PLANS, AuditStore
from recount.audit.told_findings import printable
from recount.backfill.topologies.correction import REMEDIES, Correction
from recount.backfill.topologies.corrections_due import Due
from recount.core.instants import told_window
from recount.core.output import encode_value
from recount.core.quantities import quantity
from recount.core.tables import Tables

_SHOWN = 50
_PLANNED = (
    "sink string, key string, window_start long, window_end long, origin string, now string, corrected string,"
    " revision int, standing string"
)


def table_of(due: Due, now: Collection[Correction]) -> Table:
    """The first corrections, for a terminal; ``now`` are those that would be made."""
    headings = ["sink", "key", "window", "made of", "now → corrected", "revision", ""]
    table = Table(*headings, title=f"open misses as of audit {due.run.audit}")
    for one in due.corrections[:_SHOWN]:
        window = "" if one.window_start is None else told_window(one.window_start, one.window_end)
        cells = [one.identity.written.table, one.key, window, one.origin or "", _change(one)]
        table.add_row(*map(printable, cells), str(one.revision), "" if one in now else one.standing)
    return table


def left_out(due: Due, now: Collection[Correction]) -> list[str]:
    """A sentence for each sink of which rows are not corrected, and what to do."""
    standings = due.left_out("open", "compacted") if due.of("keyed") and _has_keyed(now) else due.left_out(*REMEDIES)
    return [
        f"{quantity(number, 'row')} of {table} not corrected: {REMEDIES[standing]}"
        for table, standing, number in standings
    ]


def keep_due(session: SparkSession, tables: Tables, due: Due) -> None:
    """Put what is due into the audit's table ``plans``, for whoever decides on it."""
    rows = [
        (
            one.identity.written.topic.name,
            one.key,
            one.window_start,
            one.window_end,
            one.origin,
            _told(one.now),
            _told(one.complete),
            one.revision,
            one.standing,
        )
        for one in due.corrections
    ]
    AuditStore(session, tables, due.topology.name).put(PLANS, due.run.audit, session.createDataFrame(rows, _PLANNED))


def _has_keyed(corrections: Collection[Correction]) -> bool:
    return any(one.standing == "keyed" for one in corrections)


def _change(one: Correction) -> str:
    """The fields that differ; of several rows, which no one replaces one by one, all rows."""
    now, complete = _rows(one.now), _rows(one.complete)
    if len(now) > 1 or len(complete) > 1:
        return f"{_told(one.now)} → {_told(one.complete)}"
    return change_in_words(next(iter(now), None), next(iter(complete), None))


def _told(text: str) -> str:
    """The rows of a JSON text, without what surrounds them."""
    return "; ".join(_rows(text)) or "nothing"


def _rows(text: str) -> list[str]:
    rows = [one.get("row") for one in json.loads(text, parse_float=Decimal)]
    return ["deleted" if row is None else encode_value(row).decode() for row in rows]
