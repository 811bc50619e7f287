"""Operators that remember each key in their own way: deduplication and custom processors."""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from recount.core.processing import Deduplicate, Process
from recount.recompute.columns import column, named
from recount.recompute.decoding import IS_NULL
from recount.recompute.graph.carried_keys import IDENTITY
from recount.recompute.graph.frontiers import LEFT_IN
from recount.recompute.graph.judging import STREAM_TIME
from recount.recompute.graph.placing import Order, order_of, turn_of
from recount.recompute.graph.processing import Made, Memory, Raised, Remembered, Turn, processed
from recount.recompute.graph.rows import (
    CARRIED,
    OFFSET,
    ORDER,
    PARTITION,
    REACHED,
    SUPERSEDED,
    TIME,
    TOPIC,
    TURN,
    Rows,
    in_groups,
)
from recount.recompute.graph.stateless import raised, row_schema, with_reason, within
from recount.recompute.rules.deduplicating import goes_by_offset

WINS, WINS_BY_TIME = "__wins", "__wins_by_time"
HANDED_ON, WON, SETTLED = "__handed_on", "__won", "__settled"
"""Of carried records: whether one left before the last cut, won there, and is so old that nothing can change that."""
STATE = "__state"
"""What a processor remembers of a key, as JSON."""
_ROWS_AT_ONCE = 10_000
"""Of rows of a key: timers can make very many, and in Arrow they take a tenth of the memory."""


def identity(node: Deduplicate) -> Column:
    """What makes two records the same."""
    return column(node.by, node.input.fields)


def with_winners(node: Deduplicate, on_time: DataFrame) -> DataFrame:
    """The rows on time, with ``IDENTITY``, and ``WINS`` for the first of its id within the horizon.

    Where ids determine the partition, the rows go as they were read. With the column ``LEFT_IN`` the rows of earlier
    batches come first: what has won stays the first, also where a partition that was idle brings an earlier record.
    ``WINS_BY_TIME`` says what would have won without that. Winners that are ``SETTLED`` come before all others.
    """
    horizon_ms, by_offset = node.horizon_ms, goes_by_offset(node)

    def of_one_id(table: pa.Table) -> pa.Table:
        orders = map(order_of, table.column(ORDER).to_pylist())
        records = list(zip(table.column(TIME).to_pylist(), orders, strict=True))
        turns = map(turn_of, table.column(TURN).to_pylist() if by_offset else [None] * len(records))
        settled = [(not one, turn) for one, turn in zip(table.column(SETTLED).to_pylist(), turns, strict=True)]
        by_time = winning(records, horizon_ms=horizon_ms, by_offset=by_offset, batches=settled)
        wins = by_time
        if LEFT_IN in table.column_names:
            batches = table.column(LEFT_IN).to_pylist()
            wins = winning(records, horizon_ms=horizon_ms, by_offset=by_offset, batches=batches)
        found = table.append_column(WINS, pa.array(wins, pa.bool_()))
        return found.append_column(WINS_BY_TIME, pa.array(by_time, pa.bool_()))

    added = [T.StructField(name, T.BooleanType()) for name in (WINS, WINS_BY_TIME)]
    return in_groups(on_time, [IDENTITY], of_one_id, T.StructType([*on_time.schema.fields, *added]))


def read_too_late(decided: DataFrame) -> DataFrame:
    """The records that would have won had they been read in time, each with those that it would have changed.

    ``decided`` are the rows ``with_winners``; the columns are those of changes that lookups missed (``UNREAD_SCHEMA``).
    """
    would, does = F.col(WINS_BY_TIME), F.col(WINS)
    changed = decided.where((would != does) & F.col(OFFSET).isNotNull())
    first = changed.where(would).select(
        F.col(IDENTITY).alias("__of"),
        F.col(TOPIC).alias("topic"),
        F.col(PARTITION).alias("partition"),
        F.col(OFFSET).alias("offset"),
        F.col(TIME).alias("timestamp_ms"),
    )
    return changed.join(first, F.col(IDENTITY) == F.col("__of")).select(
        *("topic", "partition", "offset", "timestamp_ms"),
        F.col(TOPIC).alias("event_topic"),
        F.col(PARTITION).alias("event_partition"),
        F.col(OFFSET).alias("event_offset"),
        F.col(TIME).alias("event_ms"),
        F.col(IDENTITY).cast("string").alias("key"),
    )


def processed_by_key(node: Process, above: Rows, timed: DataFrame, end_ms: int | None) -> DataFrame:
    """What the processor makes of each key's rows; ``STREAM_TIME`` is what their partition had reached before each.

    Beside them one row with ``REASON`` for each record for which it raised, and one with ``STATE`` for each key of
    which something is remembered. A row of ``timed`` that has it is what was remembered before the others.
    """
    key, given, fields = node.key, list(node.input.fields), list(node.fields)
    on_record, on_timer, operator = node.on_record, node.on_timer, str(node)
    schema = with_reason(row_schema(node.fields, above.frame)).add(STATE, T.StringType())

    def of_one_key(table: pa.Table) -> pa.Table:
        found = table.to_pylist()
        given_rows = (row for row in found if row[STATE] is None)
        rows = sorted(given_rows, key=lambda row: (turn_of(row[TURN]), order_of(row[ORDER])))
        turns = [Turn({name: row[name] for name in given}, row[TIME], row[STREAM_TIME]) for row in rows]
        the_key, before = found[0][key], next((row[STATE] for row in found if row[STATE] is not None), None)
        arrow, left, parts = to_arrow_schema(schema), list[dict[str, Any]](), list[pa.Table]()
        for one in processed(_memory(the_key, before), turns, on_record, on_timer, end_ms=end_ms):
            match one:
                case Raised():
                    left.append(raised(rows[one.turn], operator, one.error))
                case Made():
                    left.append({**dict.fromkeys(fields), **one.row, key: the_key, **_meta(one, rows, the_key)})
                case Remembered() if one.state.remembered or one.state.timers_ms:
                    left.append({key: the_key, STATE: _told(one.state)})
            if len(left) >= _ROWS_AT_ONCE:
                parts.append(pa.Table.from_pylist(left, schema=arrow))
                left = []
        return pa.concat_tables([*parts, pa.Table.from_pylist(left, schema=arrow)])

    return in_groups(timed, [key], of_one_key, schema)


def _memory(key: Any, told: str | None) -> Memory:
    if told is None:
        return Memory(key=key)
    said = json.loads(told)
    fired = said.get("fired", 0)  # releases that did not count say nothing of it
    return Memory(key=key, remembered=said["remembered"], timers_ms=set(said["timers_ms"]), fired=fired)


def _told(state: Memory) -> str:
    told = {"remembered": state.remembered, "timers_ms": sorted(state.timers_ms), "fired": state.fired}
    return json.dumps(told)


def _meta(made: Made, rows: list[dict[str, Any]], key: Any) -> dict[str, Any]:
    """A row made of a record keeps its place; one that a timer made is derived."""
    if made.turn is not None:
        return within(rows[made.turn], made.number)
    steps = ("", made.timestamp_ms, made.timestamp_ms), (str(key), -1, 0), ("", made.number, 0)
    order = [dict(zip(("topic", "partition", "offset"), step, strict=True)) for step in steps]
    nowhere = {TOPIC: None, PARTITION: None, OFFSET: None, CARRIED: None, REACHED: None, TURN: None}
    return {**nowhere, TIME: made.timestamp_ms, ORDER: order, IS_NULL: False, SUPERSEDED: False}


def takes(node: Process) -> Column:
    """A processor sees rows with a key and a value."""
    return named(node.key).isNotNull() & ~F.col(IS_NULL)


def winning(
    records: Sequence[tuple[int, Order]],
    *,
    horizon_ms: int,
    by_offset: bool,
    batches: Sequence[Any] | None = None,
) -> list[bool]:
    """Of each record, event time and order, whether no winner before it lies within ``horizon_ms``, inclusive.

    Before it: by offset, or by (event time, order). Horizon 10, by event time: of 0, 10, 11 the first and last win.
    With the ``batches`` in which the records are decided, the earlier batch comes first, whatever the order. They are
    anything that can be compared.
    """
    in_batch = batches or [0] * len(records)
    turns = sorted(
        range(len(records)),
        key=lambda index: (in_batch[index], *records[index][by_offset:]),
    )
    wins, winners_ms = [False] * len(records), list[int]()
    for index in turns:
        at_ms = records[index][0]
        following = bisect_left(winners_ms, at_ms - horizon_ms)
        if following == len(winners_ms) or winners_ms[following] > at_ms + horizon_ms:
            wins[index] = True
            insort(winners_ms, at_ms)
    return wins
