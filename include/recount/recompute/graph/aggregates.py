"""Aggregates as Spark columns: over groups, and as running values over a window specification."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, WindowSpec
from pyspark.sql import functions as F

from recount.core.aggregates import Aggregate
from recount.core.schema import FieldType
from recount.recompute.columns import column, spark_type
from recount.recompute.graph.folding import estimated, folded, folded_in_session
from recount.recompute.graph.rows import ORDER, TIME
from recount.recompute.rules.exact_totals import as_long, exact_sum


@dataclass(frozen=True, kw_only=True)
class Over:
    """The rows that are aggregated: those of a group that ``count``, taken as a whole or ``running`` along an order.

    ``gap_ms`` is that of the session, whose folds merge as the session did. ``passed_over`` has the names of the folds
    that pass a row over.
    """

    fields: Mapping[str, FieldType]
    counting: Column | None = None
    running: WindowSpec | None = None
    gap_ms: int | None = None
    passed_over: Column | None = None

    def results(self, aggregates: Mapping[str, Aggregate]) -> dict[str, Column]:
        """Every aggregate by its name, in its declared type."""
        return {
            name: self._result(name, aggregate).cast(spark_type(aggregate.type_over(self.fields)))
            for name, aggregate in aggregates.items()
        }

    def _result(self, name: str, aggregate: Aggregate) -> Column:
        counts = self._counting(aggregate)
        if aggregate.of is None:
            return self._of_all(F.count(F.when(counts, 1)))
        given = column(aggregate.of, self.fields)
        if aggregate.fold is not None:
            if self.passed_over is not None:
                counts &= ~F.array_contains(self.passed_over, name)
            taken = F.collect_list(F.when(counts, F.struct(F.col(ORDER), F.col(TIME), given.alias("value"))))
            return self._folding(aggregate)(self._of_all(taken))
        values = F.when(counts, given)
        match aggregate.kind:
            case "count":
                return self._of_all(F.count(values))
            case "sum":
                kind = aggregate.type_over(self.fields)
                total = exact_sum(values, kind, self._of_all)
                return as_long(total) if kind.kind == "long" else total
            case "avg":
                return self._average(aggregate, values)
            case "min":
                return self._of_all(F.min(values))
            case "max":
                return self._of_all(F.max(values))
            case "first":
                return self._of_all(F.min_by(values, F.when(values.isNotNull(), F.col(ORDER))))
            case "last":
                return self._of_all(F.max_by(values, F.when(values.isNotNull(), F.col(ORDER))))
            case "distinct":
                return F.size(self._of_all(F.collect_set(values)))
            case "distinct sketch":
                return F.udf(estimated, "long")(self._of_all(F.collect_set(values)))
        raise AssertionError(aggregate)

    def _counting(self, aggregate: Aggregate) -> Column:
        counts = F.lit(True) if self.counting is None else self.counting
        if aggregate.where is None:
            return counts
        return counts & F.coalesce(column(aggregate.where, self.fields), F.lit(False))

    def _of_all(self, aggregated: Column) -> Column:
        return aggregated if self.running is None else aggregated.over(self.running)

    def _average(self, aggregate: Aggregate, values: Column) -> Column:
        """The sum is exact for LONG, which could overflow 64 bits, and for decimals."""
        given = Aggregate(kind="max", of=aggregate.of).type_over(self.fields)
        addends = values.cast("decimal(38, 0)") if given.kind == "long" else values
        counted = self._of_all(F.count(values))
        return F.try_divide(self._of_all(F.sum(addends)).cast("double"), counted.cast("double"))

    def _folding(self, aggregate: Aggregate) -> Callable[[Column], Column]:
        fold, gap_ms, kind = aggregate.fold, self.gap_ms, aggregate.type_over(self.fields)
        assert fold is not None

        def result(taken: list[Any]) -> Any:
            ordered = [(at_ms, value) for _, at_ms, value in sorted(taken, key=_place)]
            if gap_ms is None:
                made = folded(fold, [value for _, value in ordered])
            else:
                made = folded_in_session(fold, ordered, gap_ms)
            return float(made) if kind.kind == "double" and made is not None else made

        return F.udf(result, spark_type(kind))


def _place(taken: Any) -> tuple[Any, ...]:
    return tuple(tuple(step) for step in taken[0])
