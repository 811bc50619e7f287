"""Aggregates as Spark columns, over groups and as running values; folds and distinct estimates in Python."""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial, reduce
from hashlib import md5
from typing import Any, NamedTuple

from pyspark.sql import types as T

from recount.declare.aggregates import Aggregate, Fold
from recount.declare.schema import FieldType
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column, Window, named
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.operators.exact_totals import Sum, finished_sum, long_of, mean, plain_mean, plain_sum, whole_sum
from recount.recompute.operators.log_rows import ORDER, TIME
from recount.recompute.rules.expression_rules import column
from recount.recompute.rules.range_rules import MOST_DIGITS, beyond_type, is_carried_apart
from recount.recompute.spark_columns import spark_type

SKETCH_SIZE, HASH_BITS = 1_024, 60
BEFORE = "__before_"
"""Begins the name of a column with what an aggregate amounts to of all records that are no longer there."""


class Session(NamedTuple):
    """A session at some moment, and what its records amount to."""

    start: int
    end: int
    amount: Any


class Amount(NamedTuple):
    """The amount of records that are no longer there."""

    value: Any


def folded(fold: Fold, values: Iterable[Any], before: Amount | None = None) -> Any:
    """``values`` in log order, after those ``before``. A reduce, which has no initial value, passes nulls over."""
    return reduce(partial(_plus, fold), values, _nothing(fold) if before is None else before.value)


def folded_in_session(fold: Fold, records: Iterable[tuple[int, Any]], gap_ms: int) -> Any:
    """Event times and values of one session in log order: a record merges the sessions it joins, then adds itself."""
    sessions: list[Session] = []
    for at_ms, value in records:
        sessions = _with(fold, sessions, at_ms, value, gap_ms)
    if not sessions:
        return _nothing(fold)
    return _together(fold, [session.amount for session in sessions])


@dataclass
class Attempt:
    """The amount of the records of one partition, taken one by one in log order; ``gap_ms`` is that of a session.

    Where it is no session, others may have been ``before`` them.
    """

    fold: Fold
    gap_ms: int | None
    before: Amount | None = None
    records: list[tuple[int, Any]] = field(default_factory=list)
    amount: Any = None

    def __post_init__(self) -> None:
        self.amount = self._of(())

    def add(self, at_ms: int, value: Any) -> None:
        """One more record; where a function raises, the amount is that of the others."""
        try:
            self.amount = self._and(self.amount, (at_ms, value))
        except Exception:
            # a list, which is what a function can have changed in part, is made again
            amounts = [self.amount] if self.gap_ms is None else [session.amount for session in self.amount]
            if any(isinstance(amount, list) for amount in amounts):
                self.amount = self._of(self.records)
            raise
        self.records.append((at_ms, value))

    def _of(self, records: Iterable[tuple[int, Any]]) -> Any:
        return reduce(self._and, records, self._start())

    def _start(self) -> Any:
        if self.before is not None:
            return deepcopy(self.before.value)
        return _nothing(self.fold) if self.gap_ms is None else []

    def _and(self, amount: Any, record: tuple[int, Any]) -> Any:
        if self.gap_ms is None:
            return _plus(self.fold, amount, record[1])
        return _with(self.fold, amount, *record, self.gap_ms)


def _nothing(fold: Fold) -> Any:
    """``initial`` may return one list each time, which the function changes."""
    return None if fold.initial is None else deepcopy(fold.initial())


def _with(fold: Fold, sessions: Sequence[Session], at_ms: int, value: Any, gap_ms: int) -> list[Session]:
    """``sessions`` after one more record."""
    apart = [one for one in sessions if at_ms < one.start - gap_ms or one.end + gap_ms < at_ms]
    joined = [one for one in sessions if one.start - gap_ms <= at_ms <= one.end + gap_ms]
    start = min([at_ms, *(one.start for one in joined)])
    end = max([at_ms, *(one.end for one in joined)])
    amount = _together(fold, [_nothing(fold), *(session.amount for session in joined)])
    return sorted([*apart, Session(start, end, _plus(fold, amount, value))], key=lambda one: one[:2])


def _together(fold: Fold, amounts: Sequence[Any]) -> Any:
    """``amounts`` merged, the earlier first. A reduce passes over sessions without a value."""
    told = [amount for amount in amounts if amount is not None] if fold.initial is None else amounts
    return reduce(fold.merger, told) if told else None


def _plus(fold: Fold, amount: Any, value: Any) -> Any:
    given = deepcopy(value) if isinstance(value, list) else value
    if fold.initial is None and (amount is None or given is None):
        return given if amount is None else amount
    return fold.adder(amount, given)


def estimated(values: Iterable[Any] | None) -> int:
    """How many of ``values`` differ: exact below ``SKETCH_SIZE``, else from how close its smallest hashes lie.

    The hash is the first 60 bits of MD5 of the value's text (Bar-Yossef et al., 2002, as in docs/semantics.md).
    """
    hashes = {_hash(value) for value in values or ()}
    if len(hashes) < SKETCH_SIZE:
        return len(hashes)
    largest = heapq.nsmallest(SKETCH_SIZE, hashes)[-1]
    return round((SKETCH_SIZE - 1) * (1 << HASH_BITS) / largest)


def sketched(values: Iterable[Any] | None) -> list[Any]:
    """The different ``values`` that an estimate asks for, of these and of any others beside them."""
    by_hash = {_hash(value): value for value in values or ()}
    return [by_hash[one] for one in heapq.nsmallest(SKETCH_SIZE, by_hash)]


def _hash(value: Any) -> int:
    digest = md5(str(value).encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big") >> 4


@dataclass(frozen=True, kw_only=True)
class Over:
    """The rows that are aggregated: those of a group that ``count``, taken as a whole or ``running`` along an order.

    ``gap_ms`` is that of the session, whose folds merge as the session did. ``passed_over`` has the names of the folds
    that pass a row over. With ``goes_on`` one row of a group may have, in columns ``BEFORE``, the ``amounts`` of
    records that were aggregated before; it does not count itself.
    """

    fields: Mapping[str, FieldType]
    counting: Column | None = None
    running: Window | None = None
    gap_ms: int | None = None
    passed_over: Column | None = None
    goes_on: bool = False

    def results(self, aggregates: Mapping[str, Aggregate]) -> dict[str, Column]:
        """Every aggregate by its name, in its declared type."""
        return {
            name: self._finished(aggregate, self._amount(name, aggregate)).cast(self._type(aggregate))
            for name, aggregate in aggregates.items()
        }

    def amounts(self, aggregates: Mapping[str, Aggregate]) -> dict[str, Column]:
        """The columns that ``results`` are computed from, by the name under which they are handed on (``BEFORE``)."""
        return {BEFORE + name: self._handed_on(name, aggregate) for name, aggregate in aggregates.items()}

    def _handed_on(self, name: str, aggregate: Aggregate) -> Column:
        amount = self._amount(name, aggregate)
        if aggregate.kind != "distinct sketch":
            return amount
        return F.by_python(sketched, T.ArrayType(spark_type(self._given_type(aggregate))))(amount)

    def _type(self, aggregate: Aggregate) -> T.DataType:
        return spark_type(aggregate.type_over(self.fields))

    def _amount(self, name: str, aggregate: Aggregate) -> Column:
        before = self._of_all(F.largest(named(BEFORE + name))) if self.goes_on else None
        if aggregate.fold is not None:
            return self._folded(name, aggregate, before)
        values = F.when(self._counting(aggregate), F.lit(1) if aggregate.of is None else self._value(aggregate))
        match aggregate.kind:
            case "count":
                return _joined(before, self._of_all(F.count_of(values)), operator.add)
            case "sum":
                return self._exact_sum(values, aggregate, before, name)
            case "avg":
                return self._average(values, self._given_type(aggregate), name, before)
            case "min":
                return _joined(before, self._of_all(F.smallest(values)), F.least)
            case "max":
                return _joined(before, self._of_all(F.largest(values)), F.greatest)
            case "first" | "last":
                there = values.is_not_null()
                found = F.when(there, F.struct(ORDER, values.alias("value")))
                if aggregate.kind == "first":
                    return _joined(before, self._of_all(F.smallest(found)), F.least)
                return _joined(before, self._of_all(F.largest(found)), F.greatest)
            case "distinct" | "distinct sketch":
                return _joined(before, self._of_all(F.distinct_values(values)), F.united)
        raise AssertionError(aggregate)

    def _exact_sum(self, values: Column, aggregate: Aggregate, before: Column | None, name: str) -> Column:
        """The sum ``before`` is one addend more."""
        kind = aggregate.type_over(self.fields)
        if is_carried_apart(self._given_type(aggregate)):
            return self._total(values, kind, None if before is None else named(BEFORE + name)).struct
        if before is None:
            return plain_sum(values, kind, self._of_all)
        return plain_sum(F.coalesce(named(BEFORE + name), values.cast(_wide(kind))), kind, self._of_all)

    def _total(self, values: Column, kind: FieldType, before: Column | None) -> Sum:
        wide, nothing = values.cast(_wide(kind)), F.lit(None).cast(beyond_type(kind))
        if before is None:
            return whole_sum(Sum(wide, nothing), kind, self._of_all)
        known = Sum.of(before)
        return whole_sum(Sum(F.coalesce(known.total, wide), known.beyond), kind, self._of_all)

    def _average(self, values: Column, given: FieldType, name: str, before: Column | None) -> Column:
        """Sum and number. The sum is exact for LONG, which could overflow 64 bits, and for decimals."""
        number = _joined(
            None if before is None else before.part("number"), self._of_all(F.count_of(values)), operator.add
        )
        if is_carried_apart(given):
            total = self._total(values, given, None if before is None else named(BEFORE + name))
            return F.struct(total.total.alias("total"), number.alias("number"), total.beyond.alias("beyond"))
        addends = values.cast(_wide(given))
        if before is not None:
            addends = F.coalesce(named(BEFORE + name).part("total"), addends)
        plain = self._of_all(F.total(addends)).cast(_wide(given))
        return F.struct(plain.alias("total"), number.alias("number"))

    def _finished(self, aggregate: Aggregate, amount: Column) -> Column:
        match aggregate.kind:
            case "sum" if aggregate.type_over(self.fields).kind == "long":
                return long_of(amount)
            case "sum" if is_carried_apart(self._given_type(aggregate)):
                return finished_sum(Sum.of(amount), aggregate.type_over(self.fields))
            case "avg" if is_carried_apart(self._given_type(aggregate)):
                return mean(Sum.of(amount), amount.part("number"), self._given_type(aggregate))
            case "avg":
                return plain_mean(amount.part("total"), amount.part("number"), self._given_type(aggregate))
            case "first" | "last" | "reduce" | "fold":
                return amount.part("value")
            case "distinct":
                return F.size(amount)
            case "distinct sketch":
                return F.by_python(estimated, T.LongType())(amount)
        return amount

    def _given_type(self, aggregate: Aggregate) -> FieldType:
        return _given_type(aggregate, self.fields)

    def _value(self, aggregate: Aggregate) -> Column:
        assert aggregate.of is not None
        return column(aggregate.of, self.fields)

    def _counting(self, aggregate: Aggregate) -> Column:
        counts = F.lit(True) if self.counting is None else self.counting
        if aggregate.where is None:
            return counts
        return counts & F.coalesce(column(aggregate.where, self.fields), F.lit(False))

    def _of_all(self, aggregated: Column) -> Column:
        return aggregated if self.running is None else aggregated.over(self.running)

    def _folded(self, name: str, aggregate: Aggregate, before: Column | None) -> Column:
        fold, gap_ms, kind = aggregate.fold, self.gap_ms, aggregate.type_over(self.fields)
        assert fold is not None
        counts = self._counting(aggregate)
        if self.passed_over is not None:
            counts &= ~F.coalesce(F.contains(self.passed_over, name), F.lit(False))
        row = F.struct(F.col(ORDER), F.col(TIME), self._value(aggregate).alias("value"))
        taken = self._of_all(F.all_values(F.when(counts, row)))

        def result(taken: list[dict[str, Any]] | None, before: Any = None) -> dict[str, Any]:
            ordered = [(row[TIME], row["value"]) for row in sorted(taken or (), key=_place)]
            if gap_ms is None:
                start = None if before is None else Amount(before["value"])
                made = folded(fold, [value for _, value in ordered], start)
            else:
                made = folded_in_session(fold, ordered, gap_ms)
            return {"value": float(made) if kind.kind == "double" and made is not None else made}

        schema = T.StructType([T.StructField("value", self._type(aggregate))])
        return F.by_python(result, schema)(*([taken] if before is None else [taken, before]))


def with_totals(before: Frame, aggregates: Mapping[str, Aggregate], fields: Mapping[str, FieldType]) -> Frame:
    """``amounts`` that were carried, those of an earlier release as these are: it had nothing beyond a sum."""
    for name, aggregate in aggregates.items():
        if aggregate.kind not in ("sum", "avg") or not is_carried_apart(_given_type(aggregate, fields)):
            continue
        known, amount = before.schema[BEFORE + name].dataType, named(BEFORE + name)
        nothing = F.lit(None).cast(beyond_type(_given_type(aggregate, fields))).alias("beyond")
        if not isinstance(known, T.StructType):
            before = before.with_column(BEFORE + name, F.struct(amount.alias("total"), nothing))
        elif "beyond" not in known.names:
            parts = [amount.part(part).alias(part) for part in ("total", "number")]
            before = before.with_column(BEFORE + name, F.struct(*parts, nothing))
    return before


def _given_type(aggregate: Aggregate, fields: Mapping[str, FieldType]) -> FieldType:
    return Aggregate(kind="first", of=aggregate.of).type_over(fields)


def _joined(before: Column | None, amount: Column, both: Callable[[Column, Column], Column]) -> Column:
    """``both`` of what was ``before`` and an ``amount``, either of which may be missing."""
    return amount if before is None else F.coalesce(both(before, amount), before, amount)


def _wide(kind: FieldType) -> str:
    return "double" if kind.kind == "double" else f"decimal({MOST_DIGITS}, {kind.scale})"


def _place(taken: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(tuple(step.values()) for step in taken[ORDER])
