"""Operators without state: Spark columns, and Python row by row for a flat-map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from recount.core.changelogs import TableAggregate, TableFilter
from recount.core.nodes import Filter, Node, SelectKey, Stateless, WindowedAggregate, WithFields
from recount.core.processing import Deduplicate
from recount.core.schema import FieldType
from recount.core.size_limits import Fits
from recount.core.stateless import MERGED_FROM, FlatMap, Merge, Select
from recount.recompute.columns import column, named, spark_type
from recount.recompute.decoding import IS_NULL
from recount.recompute.graph.rows import META, OFFSET, ORDER, SUPERSEDED, Rows, after, shaped
from recount.recompute.rules.out_of_range import reason_of
from recount.recompute.rules.raising import reason_for, sets_aside
from recount.recompute.rules.result_sizes import TOO_LARGE

REASON = "__reason"
"""Why a record was set aside: a function raised, a value is out of range or a result too large; null elsewhere."""
_READS_LATEST = (Deduplicate, WindowedAggregate, TableAggregate)
"""Operators to which a superseded change of a versioned table means nothing."""


def stateless(node: Stateless, inputs: list[Rows]) -> Rows:
    """What ``node`` makes of each row; a row keeps its place in the log. The action of a peek is not performed."""
    if isinstance(node, Merge):
        return Rows(node=node, frame=_merged(node, [one.frame for one in inputs]))
    [above] = inputs
    frame, fields = above.frame, node.input.fields
    match node:
        case Filter():
            return above.with_frame(node, frame.where(_passes(node)), "records")
        case WithFields(added=added):
            made = {name: column(tree, fields).cast(spark_type(node.fields[name])) for name, tree in added.items()}
            return above.with_frame(node, frame.withColumns(made))
        case SelectKey(key=key, by=by):
            return above.with_frame(node, frame.withColumn(key, column(by, fields)), "records")
        case Select(chosen=chosen):
            kept = {node.key: named(node.key), **{name: column(tree, fields) for name, tree in chosen.items()}}
            chosen_only = frame.select(*(value.alias(name) for name, value in kept.items()), *META)
            return above.with_frame(node, shaped(chosen_only, node.fields))
        case FlatMap():
            return above.with_frame(node, returned(flat_mapped(node, frame)), "records")
    return above.with_frame(node, frame)


def in_range_or_not(node: Node, above: Rows) -> DataFrame | None:
    """The rows ``above`` with ``REASON`` where an expression of ``node`` is out of range; None where none can be.

    An error where such a row is none of the log's.
    """
    reason = reason_of(node)
    if reason is None:
        return None
    if isinstance(node, _READS_LATEST):
        reason = F.when(~F.col(SUPERSEDED), reason)
    derived = F.concat(reason, F.lit(", at a derived row"))
    is_derived = F.col(OFFSET).isNull() & reason.isNotNull()
    return above.frame.withColumn(REASON, F.when(is_derived, F.raise_error(derived)).otherwise(reason))


def too_large(node: Node, above: Rows) -> DataFrame | None:
    """The rows ``above`` with ``REASON`` where ``node``, the filter of a sink, finds one too large; None elsewhere."""
    if not isinstance(node, Filter | TableFilter) or not isinstance(node.predicate, Fits):
        return None
    fits = node.predicate
    does_not_fit = ~F.col(SUPERSEDED) & ~column(fits, above.node.fields)
    said = F.lit(f"{TOO_LARGE}: result for {fits.topic}, limit {fits.limit}")
    return above.frame.withColumn(REASON, F.when(does_not_fit, said))


def in_range(node: Node, above: Rows) -> Rows:
    """The rows ``above`` that ``node`` processes."""
    reached = in_range_or_not(node, above)
    return above if reached is None else above.with_frame(above.node, returned(reached))


def or_deleted(node: Filter, above: Rows) -> Rows:
    """The rows ``above`` as they leave ``node`` where all had left before: as deletions, unless they pass."""
    return above.with_frame(node, above.frame.withColumn(IS_NULL, F.col(IS_NULL) | ~_passes(node)), "records")


def _passes(node: Filter) -> Column:
    return F.coalesce(column(node.predicate, node.input.fields), F.lit(False))


def _merged(node: Merge, frames: list[DataFrame]) -> DataFrame:
    """All rows; those that one record led to are in the order in which the ways parted, then in that of the inputs."""
    merged = None
    for port, frame in enumerate(frames):
        said = frame if node.names is None else frame.withColumn(MERGED_FROM, F.lit(node.names[port]))
        part = shaped(said.withColumn(ORDER, after(F.col(ORDER), F.lit(port))), node.fields)
        merged = part if merged is None else merged.unionByName(part)
    assert merged is not None
    return merged


def flat_mapped(node: FlatMap, frame: DataFrame) -> DataFrame:
    """The rows that the function made, and one with ``REASON`` for each record for which it raised."""
    schema = with_reason(row_schema(node.fields, frame))
    function, key, given, operator = node.function, node.key, list(node.input.fields), str(node)

    def made(row: Mapping[str, Any]) -> list[dict[str, Any]]:
        try:
            found = ({},) if row[IS_NULL] else function({name: row[name] for name in given})
            return [{**one, **within(row, index), key: row[key]} for index, one in enumerate(found)]
        except Exception as error:
            return [raised(row, operator, error)]

    def mapped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow = to_arrow_schema(schema)
        for batch in batches:
            rows = [one for row in batch.to_pylist() for one in made(row)]
            yield from pa.Table.from_pylist(rows, schema=arrow).to_batches()

    return frame.mapInArrow(mapped, schema)


def raised(row: Mapping[str, Any], operator: str, error: Exception) -> dict[str, Any]:
    """What stands for ``row``, for which a function of ``operator`` raised; raises where no record is set aside."""
    if row[OFFSET] is None or not sets_aside(error):
        raise error
    return {**{name: row[name] for name in META}, REASON: reason_for(operator, error)}


def with_reason(schema: T.StructType) -> T.StructType:
    """``schema``, and ``REASON``."""
    return T.StructType([*schema.fields, T.StructField(REASON, T.StringType())])


def returned(frame: DataFrame) -> DataFrame:
    """The rows that functions returned."""
    return frame.where(F.col(REASON).isNull()).drop(REASON)


def within(row: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The ``META`` of the row number ``index`` that was made of ``row``."""
    return {**{name: row[name] for name in META}, ORDER: [*row[ORDER], {"topic": "", "partition": index, "offset": 0}]}


def row_schema(fields: Mapping[str, FieldType], frame: DataFrame) -> T.StructType:
    """The columns ``fields`` and ``META``, these as ``frame`` has them."""
    declared = [T.StructField(name, spark_type(kind)) for name, kind in fields.items()]
    return T.StructType([*declared, *(T.StructField(name, frame.schema[name].dataType) for name in META)])
