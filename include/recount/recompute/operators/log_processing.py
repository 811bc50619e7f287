"""Operators that remember each key: deduplication, and custom processors with their timers between records."""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from recount.declare.operators.processing import Deduplicate, Process
from recount.recompute.decoding import IS_NULL
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column, named
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.operators.carried import IDENTITY
from recount.recompute.operators.frontiers import LEFT_IN
from recount.recompute.operators.log_rows import (
    CARRIED,
    OFFSET,
    ORDER,
    PARTITION,
    REACHED,
    STREAM_TIME,
    SUPERSEDED,
    TIME,
    TOPIC,
    TURN,
    Rows,
    in_groups,
)
from recount.recompute.operators.log_sessions import Order, order_of, turn_of
from recount.recompute.operators.log_stateless import raised, row_schema, with_reason, within
from recount.recompute.rules.expression_rules import column
from recount.recompute.rules.time_rules import goes_by_offset
from recount.runtime.errors import Terminal

Row = Mapping[str, Any]
OnRecord = Callable[[Row, Any], Iterable[Row]]
OnTimer = Callable[[int, Any], Iterable[Row]] | None
LONGEST_CHAIN = 1_000_000
"""So many timers of a key can go off one after the other; with a further one the processor has no end."""
LAST_TIME_MS = 2**63 - 1
WINS, WINS_BY_TIME = "__wins", "__wins_by_time"
HANDED_ON, WON, SETTLED = "__handed_on", "__won", "__settled"
"""Of carried records: whether one left before the last cut, won there, and is so old that nothing can change that."""
STATE = "__state"
"""What a processor remembers of a key, as JSON."""
_ROWS_AT_ONCE = 10_000
"""Of rows of a key: timers can make very many, and in Arrow they take a tenth of the memory."""


@dataclass(kw_only=True, slots=True)
class Memory:
    """The state that a processor is handed: the names of ``recount.declare.operators.processing.KeyState``."""

    key: Any
    timestamp_ms: int = 0
    remembered: dict[str, Any] = field(default_factory=dict)
    timers_ms: set[int] = field(default_factory=set)
    fired: int = 0

    def schedule(self, at_ms: int) -> None:
        """Ask for a timer, one for each time; raises for what is no time of a record."""
        self.timers_ms.add(_moment(at_ms))

    def left_by(self, key: Any) -> None:
        """End a call of a function of ``key``: the state that it left is written as JSON, and read again from that.

        Raises ``Terminal`` where that is something else, and as ``schedule`` does for other timers.
        """
        for at_ms in self.timers_ms:
            _moment(at_ms)
        if self.key != key:
            raise TypeError(f"the key was changed to {self.key!r}")
        try:
            again = json.loads(json.dumps(self.remembered, allow_nan=False))
            detail = "" if again == self.remembered else "it comes back from JSON as something else"
        except (TypeError, ValueError, RecursionError) as error:
            again, detail = None, str(error)
        if detail:
            raise Terminal(
                f"what a processor remembers of key {key!r} cannot be recomputed",
                given=f"{self.remembered!r}: {detail}",
                expected="plain JSON",
                remedy="let the function remember texts, numbers, lists and dicts with text keys only",
            )
        self.remembered = again


class Turn(NamedTuple):
    """A record and the time that its partition had reached just before it; None: no time yet."""

    row: Row
    timestamp_ms: int
    reached_ms: int | None


class Made(NamedTuple):
    """A row that left, the ``number``-th of those made by the record ``turn``; None: made by a timer."""

    row: Row
    timestamp_ms: int
    turn: int | None
    number: int


class Remembered(NamedTuple):
    """The state that is remembered in the end."""

    state: Memory


class Raised(NamedTuple):
    """The function raised for the record ``turn``: for the processor it has not been."""

    turn: int
    error: Exception


def processed(
    before: Memory, turns: Sequence[Turn], on_record: OnRecord, on_timer: OnTimer, *, end_ms: int | None
) -> Iterator[Made | Raised | Remembered]:
    """All rows that leave. Timers go off, earliest first, as time reaches them; in the end those up to ``end_ms``.

    ``before`` is what is remembered of the turns before; what is remembered of all comes last.

    What a record changed that raised in the end is forgotten: the key begins again where it is ``sure``, the turns
    after that are repeated, and from there on it is sure.
    """
    state, sure, first = before, deepcopy(before), 0
    for number, turn in enumerate(turns):
        yield from _timers(state, on_timer, turn.reached_ms)
        try:
            rows = _rows(turn, on_record, state)
        except Exception as error:
            yield Raised(number, error)
            state = sure
            for former in turns[first:number]:
                list(_timers(state, on_timer, former.reached_ms))
                _rows(former, on_record, state)
            list(_timers(state, on_timer, turn.reached_ms))
            sure, first = deepcopy(state), number + 1
        else:
            yield from (Made(row, turn.timestamp_ms, number, index) for index, row in enumerate(rows))
    yield from _timers(state, on_timer, end_ms)
    yield Remembered(state)


def _rows(turn: Turn, on_record: OnRecord, state: Memory) -> list[Row]:
    key, state.timestamp_ms, state.fired = state.key, turn.timestamp_ms, 0
    rows: list[Row] = [deepcopy(dict(row)) for row in on_record(deepcopy(dict(turn.row)), state)]
    state.left_by(key)
    return rows


def _timers(state: Memory, on_timer: OnTimer, reached_ms: int | None) -> Iterator[Made]:
    """A timer may set further ones."""
    while reached_ms is not None and state.timers_ms and (at_ms := min(state.timers_ms)) <= reached_ms:
        state.timers_ms.discard(at_ms)
        key, state.timestamp_ms, state.fired = state.key, at_ms, state.fired + 1
        if state.fired > LONGEST_CHAIN:
            raise Terminal(
                f"{LONGEST_CHAIN:,} timers of a key went off one after the other without a record of the key",
                given=f"key {key!r}, the timer at {at_ms} ms",
                expected="timers that come to an end",
                remedy="let the function set no further timer after so many",
            )
        rows = [deepcopy(dict(row)) for row in on_timer(at_ms, state)] if on_timer else []
        state.left_by(key)
        yield from (Made(row, at_ms, None, index) for index, row in enumerate(rows))


def _moment(given: Any) -> int:
    if type(given) is bool or not isinstance(given, Integral):
        raise TypeError(f"a timer at {given!r}, which is no whole number")
    at_ms = int(given)
    if not 0 <= at_ms <= LAST_TIME_MS:
        raise ValueError(f"a timer at {at_ms}, which is no time of a record")
    return at_ms


def identity(node: Deduplicate) -> Column:
    """The columns that make two records the same."""
    return column(node.by, node.input.fields)


def with_winners(node: Deduplicate, on_time: Frame) -> Frame:
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


def read_too_late(decided: Frame) -> Frame:
    """The records that would have won had they been read in time, each with those that it would have changed.

    ``decided`` are the rows ``with_winners``; the columns are those of changes that lookups missed (``UNREAD_SCHEMA``).
    """
    would, does = F.col(WINS_BY_TIME), F.col(WINS)
    changed = decided.where((would != does) & F.col(OFFSET).is_not_null())
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


def processed_by_key(node: Process, above: Rows, timed: Frame, end_ms: int | None) -> Frame:
    """The processor's rows of each key; ``STREAM_TIME`` is what their partition had reached before each.

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
    return named(node.key).is_not_null() & ~F.col(IS_NULL)


def winning(
    records: Sequence[tuple[int, Order]],
    *,
    horizon_ms: int,
    by_offset: bool,
    batches: Sequence[Any] | None = None,
) -> list[bool]:
    """For each record, event time and order, whether no winner before it is within ``horizon_ms``, inclusive.

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
