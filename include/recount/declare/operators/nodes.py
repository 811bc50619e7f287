"""The operators of a topology: frozen declarations, validated on construction, that only say what is to be done.

Each node knows its input and the ``fields`` of what leaves it. The key is one of the fields, named by ``key``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from recount.declare.aggregates import Aggregate, require_aggregates
from recount.declare.columns import require_free
from recount.declare.expression_types import require_boolean, require_key, type_of
from recount.declare.expressions import Expression
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.declare.operators.processing import Deduplicate, InOrder, Process
from recount.declare.operators.stateless import (
    FlatMap,
    Foreach,
    Merge,
    OneInput,
    Peek,
    Repartition,
    Select,
    Through,
    Writing,
)
from recount.declare.operators.tables import Suppress, TableAggregate, TableFilter, ToTable
from recount.declare.schema import LONG, STRING, FieldType
from recount.declare.topics import LONGEST_SOURCE, Topic
from recount.declare.unknown_names import declares
from recount.declare.windows import GlobalWindow, LastN, Windows
from recount.runtime.errors import require, require_each

KEY = "__key"
"""The column that holds the record's key until ``select_key`` names another."""
WINDOW_START, WINDOW_END = "window_start", "window_end"


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """All records of ``topic``, decoded; where lateness is judged."""

    topic: Topic
    key: str = KEY

    def __post_init__(self) -> None:
        require(self.topic.value is not None, "source-without-a-value", given=self.topic.name)
        require(
            len(self.topic.name) <= LONGEST_SOURCE, "source-name-too-long", given=self.topic.name, most=LONGEST_SOURCE
        )

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        assert self.topic.value is not None
        return {**self.topic.value.fields, self.key: STRING}

    def __str__(self) -> str:
        return f"source {self.topic.name}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Filter(OneInput):
    """Keeps the records for which ``predicate`` is true; false and null do not pass."""

    predicate: Expression

    def __post_init__(self) -> None:
        require_boolean("filter", self.predicate, self.input.fields, 'compare something: col("amount") > 100')

    def __str__(self) -> str:
        return f"filter {self.predicate}"


@dataclass(frozen=True, kw_only=True, eq=False)
class WithFields(OneInput):
    """Adds or replaces fields by expressions over the incoming record."""

    row_wise = True

    added: Mapping[str, Expression]

    def __post_init__(self) -> None:
        require_free("fields", self.added)
        if self.key in self.added:
            require_key(f"key {self.key}", self.added[self.key], self.input.fields)

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        types = {name: type_of(tree, self.input.fields) or STRING for name, tree in self.added.items()}
        return {**self.input.fields, **types}

    def __str__(self) -> str:
        return "with " + ", ".join(f"{name} = {tree}" for name, tree in self.added.items())


@dataclass(frozen=True, kw_only=True, eq=False)
class SelectKey:
    """Gives each record the key ``by``, kept as the field ``key``. A null key is dropped by keyed operators."""

    input: Node
    key: str
    by: Expression

    def __post_init__(self) -> None:
        require_free("a key", [self.key])
        require_key(f"key {self.key}", self.by, self.input.fields)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        return {**self.input.fields, self.key: type_of(self.by, self.input.fields) or STRING}

    def __str__(self) -> str:
        return f"select key {self.key} = {self.by}"


EmissionKind = Literal["final", "each batch", "each record"]


@dataclass(frozen=True, kw_only=True)
class Emission:
    """When results leave an aggregation.

    ``final``: once, as the window closes. ``each batch``: the latest of every changed key and window, once a batch.
    ``each record``: every update, in offset order; exact to the record where a key lives in one partition.
    """

    kind: EmissionKind


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowedAggregate(OneInput):
    """Aggregates per key and window; leaves the key, the window's bounds and the aggregates.

    Windows without bounds (all time, last n) leave the key and the aggregates only, and never emit a final result.
    """

    windows: Windows
    aggregates: Mapping[str, Aggregate]
    emission: Emission

    def __post_init__(self) -> None:
        require_each("not-windows", [self.windows], Windows)
        require_aggregates(self.aggregates)
        require(
            self.has_bounds or self.emission.kind != "final", "window-that-never-closes", given=f"final, {self.windows}"
        )
        bounds = (WINDOW_START, WINDOW_END)
        require_free("aggregates", self.aggregates, taken=(self.input.key, *bounds))
        if self.input.key != KEY:
            require_free("the key of a window", [self.input.key], taken=bounds)
        assert self.fields

    @property
    def has_bounds(self) -> bool:
        return not isinstance(self.windows, GlobalWindow | LastN)

    @property
    def delay_ms(self) -> int:
        """How far behind the frontier a result's event time can be."""
        return 0 if isinstance(self.windows, GlobalWindow | LastN) else self.windows.delay_ms

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        bounds = {WINDOW_START: LONG, WINDOW_END: LONG} if self.has_bounds else {}
        results = {name: aggregate.type_over(self.input.fields) for name, aggregate in self.aggregates.items()}
        return {self.key: self.input.fields[self.key], **bounds, **results}

    @property
    def in_reasons(self) -> str:
        """The text by which reasons of dead letters name it, as every release has written and compared them."""
        return self._text({name: one.called(one.kind) for name, one in self.aggregates.items()})

    def __str__(self) -> str:
        return self._text({name: str(one) for name, one in self.aggregates.items()})

    def _text(self, aggregates: Mapping[str, str]) -> str:
        named = ", ".join(f"{name} = {aggregate}" for name, aggregate in aggregates.items())
        return f"{named} per {self.key}, {self.windows}, emit {self.emission.kind}"


@declares
@dataclass(frozen=True, kw_only=True, eq=False)
class Sink(Writing):
    """The end of a flow that writes its rows."""

    def __str__(self) -> str:
        return f"sink {self.topic.name}, table {self.table}"


Stateless = Filter | WithFields | SelectKey | Select | FlatMap | Peek | Foreach | Repartition | Through | Merge
Stateful = (
    WindowedAggregate
    | StreamStreamJoin
    | StreamTableJoin
    | TableTableJoin
    | ToTable
    | TableFilter
    | TableAggregate
    | Suppress
    | Deduplicate
    | InOrder
    | Process
)
Node = Source | Stateless | Stateful | Sink
