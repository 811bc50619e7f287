"""State of a custom processor by key, as JSON and timers in ``KeyedRows``, and the key column of any state."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from recount.declare.operators.joins import StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import Node
from recount.declare.operators.processing import Deduplicate, KeyState, two_partitions
from recount.declare.operators.tables import TableAggregate
from recount.declare.schema import FieldType
from recount.engine.operators.batch_operator import Partition
from recount.engine.operators.batch_rows import META, PARTITION, TOPIC
from recount.engine.stage.polars_expressions import field_column, polars_type
from recount.engine.state.keyed_rows import KeyedRows

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
        """Nothing is remembered and nothing will happen."""
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
