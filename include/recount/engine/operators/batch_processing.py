"""Custom processors: Python functions that see one key's records in log order, with timers in event time.

The state of a key is JSON and timers in ``KeyedRows``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import polars as pl

from recount.declare.columns import IS_NULL, REVISION, STREAM_TIME, TIMESTAMP
from recount.declare.functions import failed, own_values
from recount.declare.operators.joins import StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import Node, Source, Stateless
from recount.declare.operators.processing import (
    Deduplicate,
    InOrder,
    KeyState,
    Process,
    Row,
    count_timer,
    settle,
    two_partitions,
)
from recount.declare.operators.stateless import Merge
from recount.declare.operators.tables import TableAggregate, TableFilter, ToTable
from recount.declare.schema import FieldType
from recount.engine.operators.batch_operator import Batch, Clock, Output, Partition, current
from recount.engine.operators.batch_rows import (
    ENTRY,
    META,
    ORDER,
    PARTITION,
    SUPERSEDED,
    TOPIC,
    WITHIN,
    nth,
    place_of,
    rows_schema,
    window_order,
)
from recount.engine.operators.folds import frame_of, python_rows
from recount.engine.operators.set_aside import SetAside
from recount.engine.stage.polars_expressions import field_column, polars_type
from recount.engine.state.keyed_rows import KeyedRows
from recount.runtime.errors import Terminal

_BEFORE, _NUMBER, _DUE = "__before_ms", "__number", "__due_ms"
_ROWS_AT_ONCE = 10_000


class NotExpressible(Terminal):
    """A topology that the Spark engine does not run."""


@dataclass
class Made:
    """The rows that the functions of ``node`` returned so far, each with the columns of ``META`` that it has.

    A frame takes a tenth of the memory of such rows, of which timers can make very many.
    """

    node: Process
    _rows: list[Row] = field(default_factory=list)
    _meta: list[Mapping[str, Any]] = field(default_factory=list)
    _frames: list[pl.DataFrame] = field(default_factory=list)

    def add(self, returned: Iterable[Row], meta: Mapping[str, Any], due_ms: float = math.inf) -> None:
        """Take in what a function returned, of a timer that was due at ``due_ms`` or behind one that was."""
        for number, row in enumerate(returned):
            self._rows.append(row)
            self._meta.append({**meta, _NUMBER: number, _DUE: due_ms})
        if len(self._rows) >= _ROWS_AT_ONCE:
            self._frames.append(self._frame())

    @property
    def frame(self) -> pl.DataFrame:
        return pl.concat([*self._frames, self._frame()])

    def _frame(self) -> pl.DataFrame:
        fields = frame_of(self._rows, self.node.fields, self.node)
        meta = pl.DataFrame(self._meta, schema={**META, _NUMBER: pl.Int64(), _DUE: pl.Float64()})
        self._rows, self._meta = [], []
        return pl.concat([fields, meta], how="horizontal")


@dataclass(kw_only=True)
class ProcessOperator:
    """Replays each key's records and timers as they were read, so that its state is a function of the log.

    A record for which the function raises is set aside: it has changed nothing, and let no row go.

    A timer fires before the key's next record if the stream time of the key's partition had reached it before that
    record, and after the batch if the frontier has. Records of a key must come from one partition, straight from the
    log: raises ``NotExpressible`` on construction where an operator above holds or derives records, and ``Terminal``
    at the record of a second partition while the key still remembers something.
    """

    node: Process
    clock: Clock
    states: Mapping[str, KeyedRows] = field(init=False)
    clocks: Mapping[str, Clock] = field(init=False)

    def __post_init__(self) -> None:
        _require_log_order(self.node.input)
        self._in_order = _comes_in_order(self.node.input)
        self._key = field_column(self.node.key)
        self._keys = KeyStates(self._key, self.node.fields[self.node.key])
        self.states = {"keys": self._keys.rows}
        self.clocks = {"clock": self.clock}

    def process(self, batch: Batch, inputs: Sequence[pl.DataFrame]) -> Output:
        """Null keys have no state, null values no row."""
        rows = current(inputs[0])
        keyless, keyed = rows.filter(pl.col(self._key).is_null()), rows.filter(pl.col(self._key).is_not_null())
        taken = keyed.filter(~pl.col(IS_NULL))
        timed = taken.join(self._times_before(batch, keyless, taken), on=ENTRY, how="left", maintain_order="left")
        made, raised = Made(self.node), SetAside(self.node)
        self._replay(timed, made, raised)
        reached = self._fire_reached()
        self._keys.store()
        output = Output(self._leaving(pl.concat([made.frame, reached])), raised=raised.rows)
        output.note(keyless, "null_key")
        output.note(keyed.filter(IS_NULL), "null_value")
        output.note(taken, "counted")
        return output

    def _times_before(self, batch: Batch, without_key: pl.DataFrame, taken: pl.DataFrame) -> pl.DataFrame:
        """The stream time of each record's partition just before the record; null at the beginning."""
        source = [TOPIC, PARTITION]
        carried = self.clock.state.rows.rename({STREAM_TIME: "__carried"})
        self.clock.advance(batch, without_key, taken)
        known = self.clock.exact.join(carried, on=source, how="left", maintain_order="left")
        before = pl.coalesce(pl.col(STREAM_TIME).shift().over(source), "__carried")
        return known.select(*ENTRY, before.alias(_BEFORE))

    def _replay(self, rows: pl.DataFrame, made: Made, raised: SetAside) -> None:
        kept_of, turns_of = self._keys.load(rows.select(self._key)), cache(lambda: self._turns(rows))
        for row, about in self._turns_in(rows):
            kept = kept_of(row[self.node.key])
            if not self._in_order:
                kept.come_from(about[TOPIC], about[PARTITION], str(self.node))
            self._fire_before(about, kept, made)
            try:
                returned = self._returned(row, about, kept)
            except Exception as error:
                raised.add(about, error)
                turns = turns_of()[row[self.node.key]]
                self._undo(about, kept, rows[turns[kept.known_after : kept.turns]])
            else:
                made.add(returned, {name: about[name] for name in META})
            kept.turns += 1

    def _undo(self, about: Mapping[str, Any], kept: KeptState, since: pl.DataFrame) -> None:
        """Put a key's state back to where its record at hand found it: by the last known one, and the turns ``since``.

        So nothing is copied for records that do not raise.
        """
        kept.state = deepcopy(kept.known) if kept.known else self._keys.before_the_batch(kept.state.key)
        nothing = Made(self.node)
        for row, before in self._turns_in(since):
            self._fire_before(before, kept, nothing)
            try:
                self._returned(row, before, kept)
            except Exception as error:
                raise failed(
                    self.node, f"{place_of(before, self.node.key)}, where it had returned before", error
                ) from error
        self._fire_before(about, kept, nothing)
        kept.known, kept.known_after = deepcopy(kept.state), kept.turns + 1

    def _turns(self, rows: pl.DataFrame) -> dict[Any, list[int]]:
        return dict(rows.with_row_index("__index").group_by(self._key).agg("__index").iter_rows())

    def _turns_in(self, rows: pl.DataFrame) -> Iterator[tuple[Row, Mapping[str, Any]]]:
        meta = rows.select(*META, _BEFORE).iter_rows(named=True)
        return zip(python_rows(rows, self.node.input.fields), meta, strict=True)

    def _returned(self, row: Row, about: Mapping[str, Any], kept: KeptState) -> list[Row]:
        key, kept.state.timestamp_ms, kept.state.fired = kept.state.key, about[TIMESTAMP], 0
        try:
            made = self.node.on_record(row, kept.state)
            returned: list[Row] = [own_values({**one, self.node.key: key}) for one in made]
            settle(kept.state, key)
        finally:
            kept.state.key = key
        return returned

    def _fire_before(self, about: Mapping[str, Any], kept: KeptState, made: Made) -> None:
        """The timers that the partition had reached before the record."""
        while about[_BEFORE] is not None and kept.next_timer_ms <= about[_BEFORE]:
            self._fire(kept, made)

    def _fire_reached(self) -> pl.DataFrame:
        """Rows made by the timers that the frontier has reached, by time, then key; a timer may set further ones.

        They go off key by key, so that of one key whose timers have no end not much is made of the others.
        """
        frontier_ms, made = self.clock.frontier_ms, Made(self.node)
        if frontier_ms is None:
            return made.frame
        for kept in self._keys.with_timers(frontier_ms):
            due_ms = -math.inf
            while kept.next_timer_ms <= frontier_ms:
                due_ms = max(due_ms, float(kept.next_timer_ms))
                self._fire(kept, made, due_ms)
        return made.frame.sort(_DUE, pl.col(self._key).cast(pl.String), maintain_order=True)

    def _fire(self, kept: KeptState, made: Made, due_ms: float = math.inf) -> None:
        at_ms, state, key = int(kept.next_timer_ms), kept.state, kept.state.key
        state.timers_ms.discard(at_ms)
        state.timestamp_ms = at_ms
        on_timer = self.node.on_timer
        try:
            count_timer(state, at_ms, self.node)
            returned = [own_values({**row, self.node.key: key}) for row in (on_timer(at_ms, state) if on_timer else ())]
            settle(state, key)
        except Exception as error:
            raise failed(self.node, f"the timer {at_ms} of key {key!r}", error) from error
        about = dict.fromkeys(META) | {TIMESTAMP: at_ms, IS_NULL: False, REVISION: 0, SUPERSEDED: False, WITHIN: ""}
        made.add(returned, about, due_ms)

    def _leaving(self, leaving: pl.DataFrame) -> pl.DataFrame:
        of_timer = window_order(pl.col(TIMESTAMP), pl.col(TIMESTAMP), pl.col(self._key))
        ordered = leaving.with_columns(pl.coalesce(ORDER, of_timer), nth(pl.col(_NUMBER)))
        return ordered.select(list(rows_schema(self.node.fields)))


def _require_log_order(node: Node) -> None:
    """Refuse to process rows that do not reach the operator as the log has them."""
    for holding in _holding(node):
        raise NotExpressible.of("processor-of-derived-records", given=str(holding))


def _comes_in_order(node: Node) -> bool:
    """Whether rows come by event time, of whatever partitions; a merge of such rows and others does not."""
    return isinstance(node, InOrder) or (not isinstance(node, Source | Merge) and _comes_in_order(node.inputs[0]))


def _holding(node: Node) -> Iterator[Node]:
    match node:
        case InOrder():
            return
        case Deduplicate(partitioned=True) | StreamTableJoin(grace_ms=None) | ToTable() | TableFilter():
            yield from _holding(node.inputs[0])
        case Source():
            return
        case Process(on_timer=None):
            yield from _holding(node.input)
        case _ if isinstance(node, Stateless):
            for above in node.inputs:
                yield from _holding(above)
        case _:
            yield node


REMEMBERED, TIMERS, FIRED = "remembered", "timers_ms", "fired"


@dataclass(order=False)
class KeptState:
    """One key's state while a batch is processed, and the partition that its records come from (``in_order``: none).

    ``turns`` counts the key's records in the batch so far; ``known`` is the state after ``known_after`` of them, if one
    had to be undone.
    """

    state: KeyState
    source: Partition | None = None
    turns: int = 0
    known: KeyState | None = None
    known_after: int = 0

    @property
    def next_timer_ms(self) -> float:
        """The earliest timer; infinite where there is none."""
        return min(self.state.timers_ms, default=math.inf)

    @property
    def is_empty(self) -> bool:
        return not self.state.remembered and not self.state.timers_ms

    def come_from(self, topic: str, partition: int, processor: str) -> None:
        """Take the record's partition in; two of them have no common order. Raises ``Terminal``."""
        if self.source not in (None, (topic, partition)) and not self.is_empty:
            assert self.source is not None
            raise two_partitions(processor, self.state.key, self.source, (topic, partition))
        self.source = topic, partition


@dataclass
class KeyStates:
    """All keys' states; those that a batch has loaded are at hand until ``store``."""

    key: str
    key_type: FieldType
    rows: KeyedRows = field(init=False)
    _loaded: dict[Any, KeptState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kept = {
            REMEMBERED: pl.String(),
            TIMERS: pl.List(pl.Int64),
            TOPIC: META[TOPIC],
            PARTITION: META[PARTITION],
            FIRED: pl.Int64(),  # null in rows of releases that did not count
        }
        self.rows = KeyedRows({self.key: polars_type(self.key_type), **kept}, [self.key])

    def load(self, keys: pl.DataFrame) -> Callable[[Any], KeptState]:
        """Have the states of ``keys`` at hand; returns how to get one, made new where there is none."""
        self._take(self.rows.of(keys, [self.key]))
        return lambda key: self._loaded.setdefault(key, KeptState(KeyState(key=key)))

    def before_the_batch(self, key: Any) -> KeyState:
        """A key's state as it was stored last."""
        found = self.rows.of(pl.DataFrame({self.key: [key]}, {self.key: self.rows.schema[self.key]}), [self.key])
        for told in found.select(REMEMBERED, TIMERS, FIRED).iter_rows():
            return _state(key, *told)
        return KeyState(key=key)

    def with_timers(self, until_ms: int) -> Iterator[KeptState]:
        """Every state that has a timer up to ``until_ms``."""
        self._take(self.rows.where(pl.col(TIMERS).list.min() <= until_ms))
        return (kept for kept in self._loaded.values() if kept.next_timer_ms <= until_ms)

    def store(self) -> None:
        """Put away all that is at hand, and forget keys of which nothing is remembered."""
        full = [kept for kept in self._loaded.values() if not kept.is_empty]
        empty = [kept.state.key for kept in self._loaded.values() if kept.is_empty]
        stored = [
            (state.key, json.dumps(state.remembered), sorted(state.timers_ms), *(source or (None, None)), state.fired)
            for state, source in ((kept.state, kept.source) for kept in full)
        ]
        self.rows.put(pl.DataFrame(stored, self.rows.schema, orient="row"))
        self.rows.remove(pl.DataFrame({self.key: empty}, {self.key: self.rows.schema[self.key]}))
        self._loaded = {}

    def _take(self, found: pl.DataFrame) -> None:
        for key, remembered, timers_ms, topic, partition, fired in found.select(list(self.rows.schema)).iter_rows():
            self._loaded.setdefault(key, KeptState(_state(key, remembered, timers_ms, fired), (topic, partition)))


def _state(key: Any, remembered: str, timers_ms: list[int], fired: int | None) -> KeyState:
    return KeyState(key=key, remembered=json.loads(remembered), timers_ms=set(timers_ms), fired=fired or 0)


def key_column(node: Node, state: str) -> str:
    """The column of ``state`` of ``node`` that has the key: that of the input whose rows these are.

    Winners of a deduplication have their id only, groups of a table their own key, which is that of the results.
    """
    match node, state:
        case Deduplicate(), "winners":
            return "id"
        case TableAggregate(), "groups":
            return "group"
        case TableAggregate(), _:
            return "row"
        case TableTableJoin(), "results":
            return "__key"
        case StreamTableJoin(right=right), "table":
            return field_column(right.key)
    port = 1 if state == "right" else 0
    return field_column(node.inputs[port].key)
