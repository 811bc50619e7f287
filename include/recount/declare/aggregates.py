"""Aggregates of a group's values, declared; each implementation computes them with code of its own.

Sums are exact: one that its declared type cannot hold is an error that names it, never another number.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, Literal

from recount.declare.expression_types import require_boolean, require_expression, type_of
from recount.declare.expressions import Expression, col
from recount.declare.schema import DOUBLE, LONG, LONG_MAX, LONG_MIN, FieldType, require_types
from recount.declare.unknown_names import declares
from recount.runtime.errors import OfARecord, require, require_each

AggregateKind = Literal[
    "count", "sum", "min", "max", "avg", "first", "last", "distinct", "distinct sketch", "reduce", "fold"
]
MAX_SUM_PRECISION = 38
_NAMES = {"sum": "total", "min": "smallest", "max": "largest", "avg": "average"}
"""What people write and read for the kinds that fingerprints and stored documents have."""
EXACT = Context(prec=400)
"""Wide enough that no sum of decimals or of DOUBLEs is rounded before it is compared with what its type holds."""
LARGEST_DOUBLE = sys.float_info.max
BEYOND_DOUBLE = 2.0**64
"""What is beyond a DOUBLE is carried in units of it."""
_SHOWN = Context(prec=17)


@dataclass(frozen=True, kw_only=True)
class Fold:
    """An aggregation in Python functions. ``initial`` None (a reduce) starts with the first value itself.

    ``adder(accumulator, value)`` takes the values one by one, in (partition, offset) order; ``merger(one, other)``
    joins the accumulators of two sessions that a record has bridged, the earlier session first.
    """

    initial: Callable[[], Any] | None
    adder: Callable[[Any, Any], Any]
    merger: Callable[[Any, Any], Any]
    returns: FieldType | None

    def __post_init__(self) -> None:
        for name, given in (("adder", self.adder), ("merger", self.merger), ("initial", self.initial)):
            if given is not None or name != "initial":
                require(callable(given), "not-a-function", given=repr(given), field=name)
        if self.returns is not None:
            require_types("fold", {"returns": self.returns})


@declares
@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """One column of a result, over the values ``of`` of the records for which ``where`` is true (None: of all).

    Nulls are passed over by all but ``count`` and ``fold``; of no values the result is null, of a count 0. ``first``
    and ``last`` go by (partition, offset).
    """

    kind: AggregateKind
    of: Expression | None = None
    where: Expression | None = None
    fold: Fold | None = None

    def only(self, where: Expression) -> Aggregate:
        """The same over the records for which ``where`` is true: ``count().only(col("vip"))``."""
        return replace(self, where=where)

    def type_over(self, fields: Mapping[str, FieldType]) -> FieldType:
        """The result's type: a count is LONG, an average DOUBLE, a sum of decimals is exact with 38 digits."""
        if self.where is not None:
            require_boolean(
                f"aggregate {self.word} only",
                self.where,
                fields,
                'compare something: count().only(col("amount") > 100)',
            )
        given = None if self.of is None else type_of(self.of, fields)
        require(
            not self.kind.startswith("distinct") or given is None or given.element is None,
            "aggregate-of-a-list",
            given=f"{self.of} ({given})",
            word=self.word,
        )
        if self.of is None or self.kind in {"distinct", "distinct sketch"}:
            return LONG
        if self.kind in {"first", "last", "reduce", "fold"} and given is not None:
            return self.fold.returns or given if self.fold else given
        numeric = given is not None and given.kind in ("long", "double", "decimal")
        require(
            numeric or (given is not None and given.kind == "string" and self.kind in {"min", "max"}),
            "aggregate-of-no-number",
            given=f"{self.of} ({given})",
            word=self.word,
            expected="a number or a text" if self.kind in {"min", "max"} else "a number",
        )
        assert given is not None
        if self.kind == "sum" and given.kind == "decimal":
            return FieldType(kind="decimal", precision=MAX_SUM_PRECISION, scale=given.scale)
        return DOUBLE if self.kind == "avg" else given

    @property
    def word(self) -> str:
        """Name of the aggregate in the language: ``total`` of the kind ``sum``."""
        return _NAMES.get(self.kind, self.kind)

    def called(self, name: str) -> str:
        """The aggregate as text, its function called ``name``."""
        condition = "" if self.where is None else f" only {self.where}"
        return f"{name}({'' if self.of is None else self.of}){condition}"

    def __str__(self) -> str:
        return self.called(self.word)


def require_aggregates(given: Mapping[str, object]) -> None:
    require(bool(given), "no-aggregates", given=given)
    require_each("not-an-aggregate", given.values(), Aggregate)


@declares
def count() -> Aggregate:
    """The number of records."""
    return Aggregate(kind="count")


@declares
def total(of: str | Expression) -> Aggregate:
    """The sum of a number: exact for LONG and decimal, in any order of addition for DOUBLE (compared within 1e-9)."""
    return Aggregate(kind="sum", of=_expression(of))


@declares
def smallest(of: str | Expression) -> Aggregate:
    return Aggregate(kind="min", of=_expression(of))


@declares
def largest(of: str | Expression) -> Aggregate:
    return Aggregate(kind="max", of=_expression(of))


@declares
def average(of: str | Expression) -> Aggregate:
    """The mean of a number, as DOUBLE: the exact sum over the count for LONG and decimal."""
    return Aggregate(kind="avg", of=_expression(of))


@declares
def first(of: str | Expression) -> Aggregate:
    """The value that was read first, by (partition, offset)."""
    return Aggregate(kind="first", of=_expression(of))


@declares
def last(of: str | Expression) -> Aggregate:
    """The value that was read last, by (partition, offset)."""
    return Aggregate(kind="last", of=_expression(of))


@declares
def distinct(of: str | Expression, *, sketch: bool = False) -> Aggregate:
    """The number of different values; ``sketch`` estimates it in small state, about 3 percent off beyond 1,024."""
    return Aggregate(kind="distinct sketch" if sketch else "distinct", of=_expression(of))


@declares
def reduce(of: str | Expression, reducer: Callable[[Any, Any], Any]) -> Aggregate:
    """Combines the values two by two; ``reducer`` must be associative and keep the type."""
    return Aggregate(
        kind="reduce", of=_expression(of), fold=Fold(initial=None, adder=reducer, merger=reducer, returns=None)
    )


@declares
def fold(
    of: str | Expression,
    *,
    initial: Callable[[], Any],
    adder: Callable[[Any, Any], Any],
    merger: Callable[[Any, Any], Any],
    returns: FieldType,
) -> Aggregate:
    """Kafka Streams' aggregate(initializer, aggregator, merger): nulls are handed to ``adder`` as well.

    ``fold("word", initial=str, adder=lambda text, word: text + word, merger=operator.add, returns=STRING)``
    """
    return Aggregate(
        kind="fold", of=_expression(of), fold=Fold(initial=initial, adder=adder, merger=merger, returns=returns)
    )


def _expression(of: str | Expression) -> Expression:
    if isinstance(of, str):
        return col(of)
    require_expression(of)
    return of


class SumTooLarge(OfARecord):
    """A sum of LONG beyond 64 bits, of a decimal beyond its 38 digits, or of DOUBLE beyond every finite number.

    ``given`` names the result, and the record that adds most to it where that is known. ``aggregate``, ``about`` (key
    and window, by column) and ``is_negative`` are for those who look for that record.
    """

    aggregate: str = ""
    about: Mapping[str, Any] = {}
    is_negative: bool = False

    def naming(self, record: str, among: str) -> SumTooLarge:
        """The same, which names ``record``, the one that adds most ``among`` some of those that were added up."""
        told = f"{self.given}; {among} {record} adds most to it"
        made = SumTooLarge(self.what, given=told, expected=self.expected, remedy=self.remedy)
        made.aggregate, made.about, made.is_negative = self.aggregate, self.about, self.is_negative
        made.record = record
        return made


def fits(total: float | Decimal, kind: FieldType) -> bool:
    if kind.kind == "double":
        return math.isfinite(total)
    if isinstance(total, Decimal):
        return not total or total.adjusted() < kind.precision - kind.scale
    return LONG_MIN <= total <= LONG_MAX


def sum_of_doubles(values: Iterable[float]) -> float:
    """The sum of ``values``, whatever it comes to on the way; infinite where it is beyond every finite number."""
    values = list(values)
    total = sum(values)
    if math.isfinite(total):
        return total
    exact = sum(map(Fraction, values), Fraction(0))
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def mean_of_doubles(values: Iterable[float]) -> float:
    values = list(values)
    total = sum(values)
    if math.isfinite(total):
        return total / len(values)
    return float(sum(map(Fraction, values), Fraction(0)) / len(values))


def too_large(name: str, total: object, kind: FieldType, about: Mapping[str, Any]) -> SumTooLarge:
    """The error of the aggregate ``name``; ``about`` are the key and the window of its result."""
    place = ", ".join(f"{column}={value}" for column, value in about.items())
    told = str(_SHOWN.plus(total)) if isinstance(total, Decimal) and kind.kind == "double" else str(total)
    error = SumTooLarge.of("sum-too-large", given=f"{told} for {place}" if place else told, name=name, kind=kind)
    error.aggregate, error.about, error.is_negative = name, dict(about), told.startswith("-")
    return error
