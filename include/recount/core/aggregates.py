"""Aggregates of a group's values, declared; each implementation computes them with code of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from recount.core.errors import require
from recount.core.expressions import Expression, col, type_of
from recount.core.schema import LONG, FieldType

AggregateKind = Literal["count", "sum", "min", "max"]
MAX_SUM_PRECISION = 38


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """One column of a result. Nulls are passed over by all but ``count``; of no values the result is null."""

    kind: AggregateKind
    of: Expression | None = None

    def type_over(self, fields: Mapping[str, FieldType]) -> FieldType:
        """The result's type: a count is LONG, a sum of decimals is exact with 38 digits."""
        if self.of is None:
            return LONG
        given = type_of(self.of, fields)
        numeric = given is not None and given.kind in ("long", "double", "decimal")
        require(
            numeric or (given is not None and given.kind == "string" and self.kind != "sum"),
            f"aggregate {self.kind}",
            given=f"{self.of} ({given})",
            expected="a number" if self.kind == "sum" else "a number or a text",
            remedy="aggregate another field",
        )
        assert given is not None
        if self.kind == "sum" and given.kind == "decimal":
            return FieldType(kind="decimal", precision=MAX_SUM_PRECISION, scale=given.scale)
        return given

    def __str__(self) -> str:
        return f"{self.kind}({'' if self.of is None else self.of})"


def count() -> Aggregate:
    """The number of records."""
    return Aggregate(kind="count")


def total(of: str | Expression) -> Aggregate:
    """The sum of a number: exact for LONG and decimal, in any order of addition for DOUBLE (compared within 1e-9)."""
    return Aggregate(kind="sum", of=_expression(of))


def smallest(of: str | Expression) -> Aggregate:
    """The smallest value."""
    return Aggregate(kind="min", of=_expression(of))


def largest(of: str | Expression) -> Aggregate:
    """The largest value."""
    return Aggregate(kind="max", of=_expression(of))


def _expression(of: str | Expression) -> Expression:
    return col(of) if isinstance(of, str) else of
