"""Joins, declared: stream with stream, stream with table, table with table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from recount.core.changelogs import is_versioned
from recount.core.durations import readable
from recount.core.errors import require
from recount.core.expression_types import type_of
from recount.core.expressions import Expression
from recount.core.schema import FieldType

if TYPE_CHECKING:
    from recount.core.nodes import Node

JoinKind = Literal["inner", "left", "outer"]


class Join:
    """Two inputs of equal key; what leaves has the left side's key and the fields of both."""

    left: Node
    right: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The left and the right operator."""
        return self.left, self.right

    @property
    def key(self) -> str:
        """The key of the left side."""
        return self.left.key

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        """The key, then the fields of the left, then of the right side."""
        right = {name: kind for name, kind in self.right.fields.items() if name != self.right.key}
        twice = sorted((self.left.fields.keys() & right.keys()) - {self.left.key})
        require(
            not twice,
            "join",
            given=f"on both sides: {', '.join(twice)}",
            expected="each field on one side only",
            remedy='rename one before the join: .select(payment_amount=col("amount"))',
        )
        return {**right, **self.left.fields}

    def _require_equal_keys(self) -> None:
        types = [str(node.fields[node.key]) for node in (self.left, self.right)]
        require(
            types[0] == types[1],
            "join key",
            given=" and ".join(types),
            expected="the same type on both sides",
            remedy="give both sides their key with select_key",
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamStreamJoin(Join):
    """Pairs l and r of one key with ``l.ts - before <= r.ts <= l.ts + after``, both ends inclusive.

    l is late when ``l.ts + after + grace < stream time`` of its own partition, r when ``r.ts + before + grace < stream
    time``. In a left or outer join a record without a partner leaves once, alone, when no partner can be on time any
    more: ``ts + before + after + grace < frontier``.
    """

    left: Node
    right: Node
    kind: JoinKind
    before_ms: int
    after_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        self._require_equal_keys()
        assert self.fields

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

    Of a versioned table it is the version as of the record's time, of another the one current when the record is
    read. ``grace_ms`` (versioned only): the record waits until ``ts <= stream time of the table - grace``. ``by``
    finds the row by an expression instead of the key (a global table).
    """

    left: Node
    right: Node
    kind: Literal["inner", "left"]
    grace_ms: int | None = None
    by: Expression | None = None

    def __post_init__(self) -> None:
        require(
            self.grace_ms is None or is_versioned(self.right),
            "join grace",
            given=self.grace_ms,
            expected="no grace, or a versioned table",
            remedy="declare table(topic, versioned=True): only versions can be waited for",
        )
        if self.by is None:
            self._require_equal_keys()
        else:
            assert type_of(self.by, self.left.fields)
        assert self.fields

    @property
    def delay_ms(self) -> int:
        """The grace for which records wait."""
        return self.grace_ms or 0

    def __str__(self) -> str:
        table = "versioned table" if is_versioned(self.right) else "table"
        by = "" if self.by is None else f" by {self.by}"
        grace = "" if self.grace_ms is None else f", grace {readable(self.grace_ms)}"
        return f"{self.kind} join with {table}{by}{grace}"


@dataclass(frozen=True, kw_only=True, eq=False)
class TableTableJoin(Join):
    """One row per key from the latest of both tables; a new result whenever either side changes."""

    left: Node
    right: Node
    kind: JoinKind

    def __post_init__(self) -> None:
        self._require_equal_keys()
        assert self.fields

    def __str__(self) -> str:
        return f"{self.kind} join of tables"
