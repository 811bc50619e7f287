"""Tables as the changes of their rows: made of a stream, filtered, grouped anew."""

from __future__ import annotations

from functools import partial, reduce

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from recount.core.changelogs import TableAggregate, TableFilter, ToTable
from recount.recompute.columns import column, named
from recount.recompute.decoding import IS_NULL
from recount.recompute.graph.aggregates import Over
from recount.recompute.graph.carried_keys import GROUP
from recount.recompute.graph.carrying import IS_NEW, Carrying
from recount.recompute.graph.rows import ORDER, SUPERSEDED, TIME, Rows, derived, in_turn, last_of, of_window, shaped
from recount.recompute.graph.updates import require_changes
from recount.recompute.once import once

_PASSES, _GROUP, _BEFORE, _IS_ROW = "__passes", GROUP, "__group_before", "__is_row"
_LAST_MS, _LEFT_MS, _TOUCHED = "__last_ms", "__left_ms", "__touched"


def changes(node: ToTable, above: Rows, carrying: Carrying, *, only_by_time: bool = False) -> Rows:
    """The rows with a key as changes; in a versioned table, one older than an earlier one is superseded.

    ``only_by_time``: all that follows are lookups as of the event's time, to which the order of reading means nothing.
    """
    require_changes(node, above.holds, only_by_time=only_by_time)
    keyed = above.current.where(named(node.key).isNotNull())
    if above.holds == "latest":
        return above.with_frame(node, keyed)
    if not node.versioned:
        return above.with_frame(node, keyed, "changes")
    known = carrying.with_carried(node, "youngest", keyed)
    earlier = _in_turn([named(node.key)]).rowsBetween(Window.unboundedPreceding, -1)
    version = F.struct(TIME, ORDER)
    older = version < F.max(version).over(earlier)
    judged = known.withColumn(SUPERSEDED, F.coalesce(older, F.lit(False)))
    carrying.keep(node, "youngest", lambda: last_of(judged, [named(node.key)], F.col(TIME), F.col(ORDER)))
    return above.with_frame(node, _new(judged), "changes")


def _in_turn(keys: list[Column]) -> WindowSpec:
    """The rows of each key as they came: those that are carried first."""
    return Window.partitionBy(*keys).orderBy(F.col(IS_NEW), *in_turn())


def _new(known: DataFrame) -> DataFrame:
    return known.where(F.col(IS_NEW)).drop(IS_NEW)


def filtered(node: TableFilter, above: Rows, carrying: Carrying) -> Rows:
    """A row that does not pass is deleted, which means something only where one passed before."""
    passes = ~F.col(IS_NULL) & F.coalesce(column(node.predicate, node.input.fields), F.lit(False))
    judged = above.frame.withColumn(_PASSES, passes)
    if above.holds != "latest":
        known = carrying.with_carried(node, "passed", judged)
        earlier = _in_turn([named(node.key)]).rowsBetween(Window.unboundedPreceding, -1)
        passed = F.last(F.when(~F.col(SUPERSEDED), F.col(_PASSES)), ignorenulls=True).over(earlier)
        idle = ~F.col(_PASSES) & ~F.coalesce(passed, F.lit(False))
        found = known.withColumn("__idle", idle)
        carrying.keep(node, "passed", lambda: _current(known, [named(node.key)]))
        judged = _new(found.withColumn(SUPERSEDED, F.col(SUPERSEDED) | F.col("__idle")).drop("__idle"))
    return above.with_frame(node, judged.withColumn(IS_NULL, ~F.col(_PASSES)).drop(_PASSES))


def _current(known: DataFrame, keys: list[Column]) -> DataFrame:
    """The row of each key that came last."""
    return last_of(known.where(~F.col(SUPERSEDED)), keys, F.col(IS_NEW), *in_turn())


def regrouped(node: TableAggregate, above: Rows, carrying: Carrying) -> Rows:
    """One row for each group that a change touched, over the rows that are in it in the end.

    A group keeps its row when it is empty. Its time is the latest of the changes that touched it, the leaving of a row
    included. Where only the latest rows are known, its time is that of the rows that it has, and if it has lost its
    last row in this stretch, it is deleted.
    """
    by = F.when(~F.col(IS_NULL), column(node.by, node.input.fields))
    rows = above.current.withColumn(_GROUP, by)
    known = carrying.with_carried(node, "rows", rows)
    held = once(_current(known, above.identity)).where(F.col(_GROUP).isNotNull())
    carrying.keep(node, "rows", lambda: held)
    has_history = above.holds == "changes"
    parts = [held.withColumn(_IS_ROW, F.lit(True)), _touched(above, known, has_history)]
    if has_history:
        no_times = parts[1].select(_GROUP, TIME).limit(0)
        parts.append(carrying.with_carried(node, "groups", no_times).withColumn(_IS_ROW, F.lit(False)))
    everything = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)
    results = Over(fields=node.input.fields, counting=F.col(_IS_ROW)).results(node.aggregates)
    grouped = everything.groupBy(_GROUP).agg(
        *(result.alias(name) for name, result in results.items()),
        F.max(TIME).alias(_LAST_MS),
        F.max(_LEFT_MS).alias(_LEFT_MS),
        F.bool_or(_IS_ROW).alias(_IS_ROW),
        F.bool_or(_TOUCHED).alias(_TOUCHED),
    )
    grouped = once(grouped.withColumn(_LAST_MS, F.coalesce(_LAST_MS, _LEFT_MS)))
    if has_history:
        carrying.keep(node, "groups", lambda: grouped.select(_GROUP, F.col(_LAST_MS).alias(TIME)))
    made = grouped.where(_TOUCHED).withColumn(node.key, F.col(_GROUP))
    order = of_window(F.col(_GROUP), F.lit(0), F.lit(0))
    is_null = F.lit(False) if has_history else ~F.col(_IS_ROW)
    frame = shaped(derived(made, F.col(_LAST_MS), order, is_null), node.fields)
    return Rows(node=node, frame=frame, holds="latest")


def _touched(above: Rows, known: DataFrame, has_history: bool) -> DataFrame:
    """Every group that a new change put a row into or took one out of, with the time of that change.

    Without a history the time of a row that left is told apart: its group may have had others after it.
    """
    before = F.lag(_GROUP).over(_in_turn(above.identity))
    moved = _new(known.withColumn(_BEFORE, before))
    entered = moved.select(_GROUP, F.col(TIME), F.lit(None).cast("long").alias(_LEFT_MS))
    time = F.col(TIME) if has_history else F.lit(None).cast("long")
    left = moved.select(F.col(_BEFORE).alias(_GROUP), time.alias(TIME), F.col(TIME).alias(_LEFT_MS))
    told = {_IS_ROW: F.lit(False), _TOUCHED: F.lit(True)}
    return entered.union(left).where(F.col(_GROUP).isNotNull()).withColumns(told)
