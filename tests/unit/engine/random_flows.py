"""What random topologies are made of: topics, and flows that know how far their rows depend on batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tests.unit.engine import wide_values
from tests.unit.engine.wide_values import wide_expression

from recount.declare.aggregates import (
    Aggregate,
    average,
    count,
    distinct,
    first,
    fold,
    largest,
    last,
    reduce,
    smallest,
    total,
)
from recount.declare.expressions import Expression, col
from recount.declare.flow import RecordStream, Table, stream
from recount.declare.operators.event_time import holds_back, records_from
from recount.declare.operators.nodes import Node, Sink, Source
from recount.declare.operators.processing import Process
from recount.declare.operators.stateless import MERGED_FROM
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.windows import SessionWindows, SlidingWindows, TimeWindows, Windows

ENOUGH_MS = 70
"""A grace longer than any record of these logs is behind another."""


Exactness = Literal["rows", "revised", "latest"]
"""How far what leaves depends on batches: ``rows`` not at all; ``revised``: the last revision of each result does not,
and windows below follow revisions; ``latest``: only the last row of each key and window does not."""


STREAMS, TABLES = ("left", "right"), ("table", "versions")


def topic_of(name: str) -> Topic:
    """The topic ``name``, of which every field begins with its first letter; `right` has times of its own."""
    letter = name[0]
    fields = {"n": LONG, "w": STRING, "x": DOUBLE, "d": decimal(9, 2), "b": BOOLEAN, "at": LONG, **wide_values.FIELDS}
    schema = RecordSchema(fields={letter + short: kind for short, kind in fields.items()})
    return Topic(name=name, key="id", value=schema, event_time="rat" if name == "right" else None)


TOPICS = {name: topic_of(name) for name in (*STREAMS, *TABLES)}


@dataclass(frozen=True, kw_only=True)
class Flow:
    """A stream or a table while it is built.

    ``in_order``: its rows leave as the log has them; ``by_time``: by event time. ``any_order``: nothing of it depends
    on the order in which partitions and topics are read. ``single``: every record comes from one partition.
    ``has_bounds``: a row is about a key and a window. ``with_times``: also its time does not depend on batches.
    ``behind``: derived rows can come behind the frontier (updates of what never closes, timers set in the past).
    """

    rows: RecordStream | Table
    topics: frozenset[str]
    exactness: Exactness = "rows"
    in_order: bool = True
    any_order: bool = True
    single: bool = False
    has_bounds: bool = False
    with_times: bool = True
    behind: bool = False
    by_time: bool = False

    @property
    def key(self) -> str:
        """The field of the key."""
        return self.rows.node.key

    def of_kind(self, *kinds: str) -> list[str]:
        """The fields of these kinds, but those of the largest numbers."""
        fields = self.rows.node.fields
        return [name for name, kind in fields.items() if kind.kind in kinds and not wide_values.is_wide(name)]


@dataclass(frozen=True, kw_only=True)
class Comparable:
    """What of a sink's rows does not depend on batches; see ``Flow``."""

    exactness: Exactness
    with_times: bool
    has_bounds: bool


def comparable_of(flow: Flow) -> Comparable:
    """What of ``flow`` can be compared where it is written."""
    return Comparable(exactness=flow.exactness, with_times=flow.with_times, has_bounds=flow.has_bounds)


@dataclass
class Builder:
    """Draws the parts of one topology.

    Which functions raise is drawn with ``other_dice``, and what is computed of the largest numbers with ``wide_dice``:
    so the parts are the same without them.
    """

    dice: random.Random
    partitions: Mapping[str, int]
    other_dice: random.Random
    wide_dice: random.Random
    sinks: list[Sink] = field(default_factory=list)
    comparable: dict[str, Comparable] = field(default_factory=dict)
    any_order: bool = True
    idles: bool = True
    by_key: bool = False
    names: int = 0
    wide_names: int = 0

    def one_of(self, *options: Any) -> Any:
        """One of the options."""
        return self.dice.choice(options)

    def fresh(self, prefix: str) -> str:
        """A name that no field has yet."""
        self.names += 1
        return f"{prefix}{self.names}"

    def source(self, name: str) -> Flow:
        """All records of a topic; or those for which a function does not raise."""
        rows = stream(TOPICS[name])
        if self.raises():
            rows = rows.map(flagged_one_raises(name[0]), **topic_of(name).value.fields)  # type: ignore[union-attr]
        for _ in range(self.wide_dice.choice([0, 0, 1, 2])):
            self.wide_names += 1
            rows = rows.with_fields(**{f"wide{self.wide_names}": wide_expression(self.wide_dice, name[0])})
        return Flow(rows=rows, topics=frozenset({name}), single=self.partitions[name] == 1)

    def raises(self) -> bool:
        """Whether a function shall raise for some records."""
        return self.other_dice.random() < 0.25

    def keyed(self, flow: Flow) -> Flow:
        """``flow`` under a key that is a text and can be null."""
        assert isinstance(flow.rows, RecordStream)
        by = self.one_of(*(col(name) for name in flow.of_kind("string")))
        return replace(flow, rows=flow.rows.select_key(**{self.fresh("k"): by}))

    def predicate(self, flow: Flow) -> Expression:
        """A condition that can be true, false or null."""
        numbers, flags = flow.of_kind("long", "double"), flow.of_kind("boolean")
        options: list[Expression] = [col(name) > self.one_of(0, 1, 2) for name in numbers]
        options += [col(name) for name in flags]
        options += [~col(name).is_null() for name in flow.of_kind("string")]
        return self.one_of(*options)

    def aggregates(self, flow: Flow) -> dict[str, Aggregate]:
        """One to three aggregates under fresh names."""
        kinds: list[Aggregate] = [count()]
        for name in flow.of_kind("long", "double", "decimal"):
            kinds += [total(name), smallest(name), largest(name), average(name)]
        for name in flow.of_kind("long"):
            kinds += [reduce(name, lambda one, other: one + other), digits_of(name)]
        for name in flow.of_kind("string"):
            kinds += [first(name), last(name), distinct(name), distinct(name, sketch=True), letters_of(name)]
        chosen = self.dice.choices(kinds, k=self.one_of(1, 2, 3))
        if MERGED_FROM in flow.rows.node.fields:
            chosen = [one.only(col(MERGED_FROM) == self.one_of("one", "other")) for one in chosen]
        elif self.one_of(False, False, True):
            chosen[0] = chosen[0].only(self.predicate(flow))
        return {self.fresh("a"): one for one in chosen}

    def windows(self) -> Windows:
        """Windows of any kind with an end."""
        grace_ms, origin_ms = self.one_of(0, 5, ENOUGH_MS), self.one_of(0, 3)
        return self.one_of(
            TimeWindows(size_ms=10, advance_ms=10, grace_ms=grace_ms, origin_ms=origin_ms),
            TimeWindows(size_ms=10, advance_ms=4, grace_ms=grace_ms, origin_ms=origin_ms),
            SlidingWindows(difference_ms=6, grace_ms=grace_ms),
            SessionWindows(gap_ms=4, grace_ms=grace_ms, reach_ms=self.one_of(6, ENOUGH_MS)),
            SessionWindows(gap_ms=4, grace_ms=grace_ms, max_duration_ms=9),
        )

    def end(self, flow: Flow) -> None:
        """Write the flow to a topic of its own."""
        name = f"out-{len(self.comparable)}"
        self.comparable[name] = comparable_of(flow)
        self.any_order &= flow.any_order
        self.sinks.append(flow.rows.to(Topic(name=name, key="id")))


def may_raise(node: Node) -> bool:
    """Whether every row that leaves ``node`` is made of one record, which is read in the same batch."""
    above = records_from(node)
    of_records = isinstance(node, Source) or (len(above) > 0 and all(map(may_raise, above)))
    return of_records and not holds_back(node) and not (isinstance(node, Process) and node.on_timer)


def raising_at_two(aggregate: Aggregate) -> Aggregate:
    """A fold that raises at the number 2, a reduce where it is not the first one: then the partition decides."""
    if aggregate.fold is None:
        return aggregate
    adder = aggregate.fold.adder

    def added(amount: Any, value: Any) -> Any:
        if value == 2:
            raise ValueError(f"2 after {object()}")
        return adder(amount, value)

    return replace(aggregate, fold=replace(aggregate.fold, adder=added))


def flagged_one_raises(letter: str) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """A function that raises for some records of the topic whose fields begin with ``letter``."""

    def checked(row: Mapping[str, Any]) -> Mapping[str, Any]:
        if row[f"{letter}n"] == 1 and row[f"{letter}b"]:
            raise ValueError(f"a message of its own in every run: {object()}")
        return {name: cell for name, cell in row.items() if name.startswith(letter)}

    return checked


def digits_of(name: str) -> Aggregate:
    """The numbers as text, in the order in which they are taken: what is taken out of order shows."""
    return fold(
        name, initial=str, adder=lambda text, n: f"{text}{n},", merger=lambda one, other: one + other, returns=STRING
    )


def letters_of(name: str) -> Aggregate:
    """The texts one after the other; a reduce passes over nulls."""
    return reduce(name, lambda one, other: one + other)
