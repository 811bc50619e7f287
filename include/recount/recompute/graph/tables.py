"""Tables as the changes of their rows: made of a stream, filtered, grouped anew."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from recount.core.changelogs import TableAggregate, TableFilter, ToTable
from recount.recompute.columns import column, named
from recount.recompute.decoding import IS_NULL
from recount.recompute.flow import NotRecomputable
from recount.recompute.graph.aggregates import Over
from recount.recompute.graph.ordering import require_ordered
from recount.recompute.graph.rows import ORDER, SUPERSEDED, TIME, Rows, derived, last_of, of_window, shaped

_PASSES, _GROUP, _BEFORE, _IS_ROW = "__passes", "__group", "__group_before", "__is_row"


def changes(node: ToTable, above: Rows, *, only_by_time: bool = False) -> Rows:
    """The rows with a key as changes; in a versioned table, one older than an earlier one is superseded.

    ``only_by_time``: all that follows are lookups as of the event's time, to which the order of reading means nothing.
    """
    keyed = above.current.where(named(node.key).isNotNull())
    if above.holds == "latest":
        if node.versioned:
            raise NotRecomputable(
                f"{node} cannot be recomputed",
                given=f"the updates of {above.node}, of which only the last depends on nothing but the log",
                expected="a stream of records or of final results",
                remedy="emit final results, or declare the table unversioned",
            )
        return above.with_frame(node, keyed)
    if not node.versioned:
        if not only_by_time:
            require_ordered(node.input, node)
        return above.with_frame(node, keyed, "changes")
    earlier = Window.partitionBy(named(node.key)).orderBy(ORDER).rowsBetween(Window.unboundedPreceding, -1)
    version = F.struct(TIME, ORDER)
    older = version < F.max(version).over(earlier)
    return above.with_frame(node, keyed.withColumn(SUPERSEDED, F.coalesce(older, F.lit(False))), "changes")


def filtered(node: TableFilter, above: Rows) -> Rows:
    """A row that does not pass is deleted, which means something only where one passed before."""
    passes = ~F.col(IS_NULL) & F.coalesce(column(node.predicate, node.input.fields), F.lit(False))
    judged = above.frame.withColumn(_PASSES, passes)
    if above.holds != "latest":
        earlier = Window.partitionBy(named(node.key)).orderBy(ORDER).rowsBetween(Window.unboundedPreceding, -1)
        passed = F.last(F.when(~F.col(SUPERSEDED), F.col(_PASSES)), ignorenulls=True).over(earlier)
        nothing_to_delete = ~F.col(_PASSES) & ~F.coalesce(passed, F.lit(False))
        judged = judged.withColumn("__idle", nothing_to_delete)
        judged = judged.withColumn(SUPERSEDED, F.col(SUPERSEDED) | F.col("__idle")).drop("__idle")
    return above.with_frame(node, judged.withColumn(IS_NULL, ~F.col(_PASSES)).drop(_PASSES))


def regrouped(node: TableAggregate, above: Rows) -> Rows:
    """One row for each group, over the rows that are in it in the end; a group keeps its row when it is empty.

    Its time is the latest of the changes that touched it, the leaving of a row included. Where only the latest rows
    are known, so are only the groups that they are in.
    """
    by = F.when(~F.col(IS_NULL), column(node.by, node.input.fields))
    rows = above.current.withColumn(_GROUP, by)
    touched = _touched(node, rows, above.holds == "changes")
    held = rows if above.holds == "latest" else last_of(rows, [named(node.input.key)], F.col(ORDER))
    held = held.where(F.col(_GROUP).isNotNull()).withColumn(_IS_ROW, F.lit(True))
    known = held.unionByName(touched.withColumn(_IS_ROW, F.lit(False)), allowMissingColumns=True)
    results = Over(fields=node.input.fields, counting=F.col(_IS_ROW)).results(node.aggregates)
    grouped = known.groupBy(_GROUP).agg(
        *(result.alias(name) for name, result in results.items()), F.max(TIME).alias("__last_ms")
    )
    made = grouped.withColumn(node.key, F.col(_GROUP))
    order = of_window(F.col(_GROUP), F.lit(0), F.lit(0))
    return Rows(node=node, frame=shaped(derived(made, F.col("__last_ms"), order), node.fields), holds="latest")


def _touched(node: TableAggregate, rows: DataFrame, has_history: bool) -> DataFrame:
    """Every group that a change put a row into or took one out of, with the time of that change."""
    earlier = Window.partitionBy(named(node.input.key)).orderBy(ORDER)
    before = F.lag(_GROUP).over(earlier) if has_history else F.lit(None).cast(rows.schema[_GROUP].dataType)
    moved = rows.withColumn(_BEFORE, before)
    groups = moved.select(F.explode(F.array_distinct(F.array(_GROUP, _BEFORE))).alias(_GROUP), TIME)
    return groups.where(F.col(_GROUP).isNotNull())
