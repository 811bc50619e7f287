"""Joins, declared: stream with stream, stream with table, table with table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from recount.declare.columns import INTERNAL
from recount.declare.expression_types import type_of
from recount.declare.expressions import Column, Expression
from recount.declare.operators.tables import is_read_as_table, is_versioned
from recount.declare.schema import FieldType
from recount.runtime.errors import require
from recount.runtime.times import readable

if TYPE_CHECKING:
    from recount.declare.operators.nodes import Node

JoinKind = Literal["inner", "left", "outer"]
AsOf = Literal["event", "arrival"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Join:
    """Two inputs of equal key; what leaves has the left side's key and the fields of both.

    A field of the right side that is named and typed like the left side's key is taken for the same: values often
    repeat the key of their record.
    """

    left: Node
    right: Node

    def __post_init__(self) -> None:
        self._require_equal_keys()
        assert self.fields

    @property
    def keys_are_equal(self) -> bool:
        """Whether the rows of both sides that go together have one key."""
        return True

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.left, self.right

    @property
    def key(self) -> str:
        return self.left.key

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        right = {name: kind for name, kind in self.right.fields.items() if name != self.right.key}
        key = self.left.key
        repeats = self.keys_are_equal and right.get(key) == self.left.fields[key]
        of_record = key.startswith(INTERNAL)  # the right side's is that of another record, which nobody asks for
        twice = sorted((self.left.fields.keys() & right.keys()) - ({key} if repeats or of_record else set()))
        require(not twice, "join-with-a-shared-field", given=f"on both sides: {', '.join(map(_told, twice))}")
        return {**right, **self.left.fields}

    def _require_equal_keys(self) -> None:
        types = [str(node.fields[node.key]) for node in (self.left, self.right)]
        require(types[0] == types[1], "join-keys-of-two-types", given=" and ".join(types))


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamStreamJoin(Join):
    """Pairs l and r of one key with ``l.ts - before <= r.ts <= l.ts + after``, both ends inclusive.

    l is late when ``l.ts + after + grace < stream time`` of its own partition, r when ``r.ts + before + grace < stream
    time``. In a left or outer join a record without a partner leaves once, alone, when no partner can be on time any
    more: ``ts + before + after + grace < frontier``.
    """

    kind: JoinKind
    before_ms: int
    after_ms: int
    grace_ms: int

    @property
    def delay_ms(self) -> int:
        """A record without a partner leaves so long after its own time."""
        return self.before_ms + self.after_ms + self.grace_ms

    def __str__(self) -> str:
        bounds = f"{readable(self.before_ms)} before to {readable(self.after_ms)} after"
        return f"{self.kind} join of streams, {bounds}, grace {readable(self.grace_ms)}"


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamTableJoin(Join):
    """Adds to each record of the left stream the row of the right table; only stream records make results.

    ``as_of``: the row as of the record's time (``event``), or the one that is current when the record is read
    (``arrival``), which depends on how the log was read. ``grace_ms``: the record waits until ``ts <= stream time of
    the table - grace``. ``by`` finds the row by an expression instead of the key (a global table). ``history_ms``: as
    of the record's time, but of no time before ``c - history``, where c is how far time has come at the record; None:
    of any time.
    """

    kind: Literal["inner", "left"]
    grace_ms: int | None = None
    by: Expression | None = None
    as_of: AsOf = "event"
    history_ms: int | None = None

    def __post_init__(self) -> None:
        require(self.as_of in ("event", "arrival"), "lookup-as-of-something-else", given=self.as_of)
        require(
            self.as_of == "event" or not is_versioned(self.right),
            "lookup-of-a-versioned-table",
            given="'arrival', a versioned table",
        )
        require(
            self.grace_ms is None or (self.as_of == "event" and is_read_as_table(self.right)),
            "lookup-grace-without-a-topic",
            given=f"{readable(self.grace_ms or 0)}, as_of='{self.as_of}', {self.right}",
        )
        require(
            self.history_ms is None or self.as_of == "event",
            "lookup-history-as-of-arrival",
            given=f"{readable(self.history_ms or 0)}, as_of='{self.as_of}'",
        )
        if self.by is None:
            self._require_equal_keys()
        else:
            given, key = type_of(self.by, self.left.fields), self.right.fields[self.right.key]
            require(given == key, "lookup-by-another-type", given=f"{self.by} ({given})", key=key)
        assert self.fields

    @property
    def keys_are_equal(self) -> bool:
        return self.by is None or (isinstance(self.by, Column) and self.by.name == self.left.key)

    @property
    def delay_ms(self) -> int:
        """The grace for which records wait."""
        return self.grace_ms or 0

    def __str__(self) -> str:
        table = "versioned table" if is_versioned(self.right) else "table"
        by = "" if self.by is None else f" by {self.by}"
        grace = "" if self.grace_ms is None else f", grace {readable(self.grace_ms)}"
        as_of = ", as of arrival" if self.as_of == "arrival" else ""
        history = "" if self.history_ms is None else f", history {readable(self.history_ms)}"
        return f"{self.kind} join with {table}{by}{grace}{as_of}{history}"


@dataclass(frozen=True, kw_only=True, eq=False)
class TableTableJoin(Join):
    """One row per key from the latest of both tables; a new result whenever either side changes."""

    kind: JoinKind

    def __str__(self) -> str:
        return f"{self.kind} join of tables"


def _told(name: str) -> str:
    return f"{name}, the key that the record came with" if name.startswith(INTERNAL) else name
