"""Operators on tables: a table is the latest row of each key, and travels as the stream of its changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from recount.declare.aggregates import Aggregate, require_aggregates
from recount.declare.columns import require_free
from recount.declare.expression_types import require_boolean, require_key, type_of
from recount.declare.expressions import Expression
from recount.declare.operators.stateless import OneInput
from recount.declare.schema import FieldType
from recount.runtime.errors import require
from recount.runtime.times import readable

if TYPE_CHECKING:
    from recount.declare.operators.nodes import Node


@dataclass(frozen=True, kw_only=True, eq=False)
class ToTable(OneInput):
    """Reads a stream as the changes of a table: a value replaces the key's row, a null value (tombstone) deletes it.

    Unversioned: the change that is read last is the latest. ``versioned``: the one with the largest time is, and a
    change older than the latest is history only. A lookup as of the event's time makes no difference between the two.
    """

    versioned: bool = False

    def __str__(self) -> str:
        return "versioned table" if self.versioned else "table"


@dataclass(frozen=True, kw_only=True, eq=False)
class TableFilter(OneInput):
    """The rows for which ``predicate`` is true; a row that no longer passes is deleted."""

    row_wise = True

    predicate: Expression

    def __post_init__(self) -> None:
        require_boolean("filter", self.predicate, self.input.fields, 'compare something: col("amount") > 100')

    def __str__(self) -> str:
        return f"rows with {self.predicate}"


@dataclass(frozen=True, kw_only=True, eq=False)
class TableAggregate:
    """Groups the rows of a table by ``by``, and aggregates each group as it is now: a changed row moves its value.

    A change takes the old row out of its group first and then puts the new row in; each is an update. A group that has
    lost its last row stays, with a count of 0.
    """

    input: Node
    key: str
    by: Expression
    aggregates: Mapping[str, Aggregate]

    def __post_init__(self) -> None:
        require_aggregates(self.aggregates)
        require_free("a group", [self.key])
        require_key(f"key {self.key}", self.by, self.input.fields)
        require_free("aggregates", self.aggregates, taken=[self.key])
        assert self.fields

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        by = type_of(self.by, self.input.fields)
        assert by is not None, "checked by require_key"
        return {
            self.key: by,
            **{name: aggregate.type_over(self.input.fields) for name, aggregate in self.aggregates.items()},
        }

    def __str__(self) -> str:
        named = ", ".join(f"{name} = {aggregate}" for name, aggregate in self.aggregates.items())
        return f"{named} of rows by {self.key} = {self.by}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Suppress(OneInput):
    """Holds the updates of each key (and window) back, and lets the latest go when ``limit_ms`` have passed.

    It goes when ``time of the first update held <= frontier - limit``; later updates replace the row and keep that
    time. With more than ``max_rows`` rows held the oldest goes early.
    """

    limit_ms: int
    max_rows: int | None = None

    def __post_init__(self) -> None:
        require(
            self.max_rows is None or (type(self.max_rows) is int and self.max_rows > 0),
            "max-rows-no-count",
            given=self.max_rows,
        )

    @property
    def delay_ms(self) -> int:
        """How long a row can be held."""
        return self.limit_ms

    def __str__(self) -> str:
        rows = "" if self.max_rows is None else f" or {self.max_rows} rows"
        return f"hold updates for {readable(self.limit_ms)}{rows}"


def is_versioned(table: Node) -> bool:
    """Whether the change with the largest time is the latest of its key: a versioned table, or a part of one."""
    if isinstance(table, OneInput) and table.row_wise:
        return is_versioned(table.input)
    return isinstance(table, ToTable) and table.versioned


def is_read_as_table(table: Node) -> bool:
    """Whether every change of ``table`` is a record of a stream that is read as a table, or a part of it."""
    if isinstance(table, OneInput) and table.row_wise:
        return is_read_as_table(table.input)
    return isinstance(table, ToTable)
