"""The operators of a topology: frozen declarations, validated on construction, that only say what is to be done.

Each node knows its input and the ``fields`` of what leaves it. The key is one of the fields, named by ``key``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from recount.core.aggregates import Aggregate
from recount.core.errors import require
from recount.core.expressions import Expression, type_of
from recount.core.schema import LONG, STRING, FieldType
from recount.core.topics import Topic
from recount.core.windows import Windows

KEY = "__key"
"""The column that holds the record's key until ``select_key`` names another."""
WINDOW_START, WINDOW_END = "window_start", "window_end"


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """All records of ``topic``, decoded; where lateness is judged."""

    topic: Topic
    key: str = KEY

    def __post_init__(self) -> None:
        require(
            self.topic.value is not None,
            "source",
            given=self.topic.name,
            expected="a topic with a declared value schema",
            remedy="declare Topic(value=RecordSchema.of(...))",
        )

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        """The declared fields of the value, and the key."""
        assert self.topic.value is not None
        return {**self.topic.value.fields, self.key: STRING}

    def __str__(self) -> str:
        return f"source {self.topic.name}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Filter:
    """Keeps the records for which ``predicate`` is true; false and null do not pass."""

    input: Node
    predicate: Expression

    def __post_init__(self) -> None:
        given = type_of(self.predicate, self.input.fields)
        require(
            given is not None and given.kind == "boolean",
            "filter",
            given=f"{self.predicate} ({given})",
            expected="a boolean expression",
            remedy='compare something: col("amount") > 100',
        )

    @property
    def key(self) -> str:
        """The key passes unchanged."""
        return self.input.key

    @property
    def fields(self) -> Mapping[str, FieldType]:
        """The fields pass unchanged."""
        return self.input.fields

    def __str__(self) -> str:
        return f"filter {self.predicate}"


@dataclass(frozen=True, kw_only=True, eq=False)
class WithFields:
    """Adds or replaces fields by expressions over the incoming record."""

    input: Node
    added: Mapping[str, Expression]

    @property
    def key(self) -> str:
        """The key passes unchanged."""
        return self.input.key

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        """The incoming fields, with those of ``added``."""
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
        given = type_of(self.by, self.input.fields)
        require(
            given is not None and given.kind in ("string", "long"),
            f"key {self.key}",
            given=f"{self.by} ({given})",
            expected="a STRING or a LONG",
            remedy="choose a field that identifies the group",
        )

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        """The incoming fields and the key."""
        return {**self.input.fields, self.key: type_of(self.by, self.input.fields) or STRING}

    def __str__(self) -> str:
        return f"select key {self.key} = {self.by}"


EmissionKind = Literal["final", "each batch"]


@dataclass(frozen=True, kw_only=True)
class Emission:
    """When results leave an aggregation: ``final`` once, as the window closes; ``each batch`` with every update."""

    kind: EmissionKind


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowedAggregate:
    """Aggregates per key and window; leaves the key, the window's bounds and the aggregates."""

    input: Node
    windows: Windows
    aggregates: Mapping[str, Aggregate]
    emission: Emission

    def __post_init__(self) -> None:
        require(
            bool(self.aggregates),
            "aggregates",
            given=self.aggregates,
            expected="at least one",
            remedy="aggregate(orders=count())",
        )
        taken = {self.input.key, WINDOW_START, WINDOW_END} & set(self.aggregates)
        require(
            not taken,
            "aggregates",
            given=sorted(taken),
            expected=f"names other than {self.input.key}, {WINDOW_START}, {WINDOW_END}",
            remedy="rename the aggregate",
        )
        assert self.fields

    @property
    def key(self) -> str:
        """The grouping key."""
        return self.input.key

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        """Key, window bounds in milliseconds, aggregates."""
        results = {name: aggregate.type_over(self.input.fields) for name, aggregate in self.aggregates.items()}
        return {self.key: self.input.fields[self.key], WINDOW_START: LONG, WINDOW_END: LONG, **results}

    def __str__(self) -> str:
        named = ", ".join(f"{name} = {aggregate}" for name, aggregate in self.aggregates.items())
        return f"{named} per {self.key}, {self.windows}, emit {self.emission.kind}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Sink:
    """Writes to ``topic`` and to the Delta table ``table``, exactly once each."""

    input: Node
    topic: Topic
    table: str

    @property
    def key(self) -> str:
        """The key of the written records."""
        return self.input.key

    @property
    def fields(self) -> Mapping[str, FieldType]:
        """What is written."""
        return self.input.fields

    def __str__(self) -> str:
        return f"sink {self.topic.name}, table {self.table}"


Node = Source | Filter | WithFields | SelectKey | WindowedAggregate | Sink
