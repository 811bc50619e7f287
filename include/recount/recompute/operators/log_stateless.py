"""Operators without state: Spark columns, Python row by row for a flat-map, and reduce and fold tried by record.

A record is tried after those of its own partition in its window; records that a function refuses are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from recount.declare.aggregates import Aggregate
from recount.declare.operators.nodes import Filter, Node, SelectKey, Stateless, WindowedAggregate, WithFields
from recount.declare.operators.processing import Deduplicate
from recount.declare.operators.stateless import MERGED_FROM, FlatMap, Merge, Select
from recount.declare.operators.tables import TableAggregate, TableFilter
from recount.declare.output import Fits
from recount.declare.schema import FieldType
from recount.declare.windows import SessionWindows
from recount.recompute.decoding import IS_NULL
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column, named
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.operators.log_aggregates import BEFORE, Amount, Attempt
from recount.recompute.operators.log_rows import (
    META,
    OFFSET,
    ORDER,
    PARTITION,
    SUPERSEDED,
    TIME,
    TOPIC,
    Rows,
    after,
    in_groups,
    shaped,
)
from recount.recompute.rules.expression_rules import column
from recount.recompute.rules.range_rules import reason_of
from recount.recompute.rules.result_rules import TOO_LARGE, reason_for, sets_aside
from recount.recompute.spark_columns import spark_type

REASON = "__reason"
"""Why a record was set aside: a function raised, a value is out of range or a result too large; null elsewhere."""
_READS_LATEST = (Deduplicate, WindowedAggregate, TableAggregate)
"""Operators to which a superseded change of a versioned table means nothing."""
PASSED_OVER = "__passed_over"
"""The names of the folds that pass a row over."""


def stateless(node: Stateless, inputs: list[Rows]) -> Rows:
    """The rows that ``node`` makes of each row; a row keeps its place in the log. A peek's action is not performed."""
    if isinstance(node, Merge):
        return Rows(node=node, frame=_merged(node, [one.frame for one in inputs]))
    [above] = inputs
    frame, fields = above.frame, node.input.fields
    match node:
        case Filter():
            return above.with_frame(node, frame.where(_passes(node)), "records")
        case WithFields(added=added):
            made = {name: column(tree, fields).cast(spark_type(node.fields[name])) for name, tree in added.items()}
            return above.with_frame(node, frame.with_columns(made))
        case SelectKey(key=key, by=by):
            return above.with_frame(node, frame.with_column(key, column(by, fields)), "records")
        case Select(chosen=chosen):
            kept = {node.key: named(node.key), **{name: column(tree, fields) for name, tree in chosen.items()}}
            chosen_only = frame.select(*(value.alias(name) for name, value in kept.items()), *META)
            return above.with_frame(node, shaped(chosen_only, node.fields))
        case FlatMap():
            return above.with_frame(node, returned(flat_mapped(node, frame)), "records")
    return above.with_frame(node, frame)


def in_range_or_not(node: Node, above: Rows) -> Frame | None:
    """The rows ``above`` with ``REASON`` where an expression of ``node`` is out of range; None where none can be.

    An error where such a row is none of the log's.
    """
    reason = reason_of(node)
    if reason is None:
        return None
    if isinstance(node, _READS_LATEST):
        reason = F.when(~F.col(SUPERSEDED), reason)
    derived = F.concat(reason, ", at a derived row")
    is_derived = F.col(OFFSET).is_null() & reason.is_not_null()
    return above.frame.with_column(REASON, F.when(is_derived, F.error(derived)).otherwise(reason))


def too_large(node: Node, above: Rows) -> Frame | None:
    """The rows ``above`` with ``REASON`` where ``node``, the filter of a sink, finds one too large; None elsewhere."""
    if not isinstance(node, Filter | TableFilter) or not isinstance(node.predicate, Fits):
        return None
    fits = node.predicate
    does_not_fit = ~F.col(SUPERSEDED) & ~column(fits, above.node.fields)
    said = F.lit(f"{TOO_LARGE}: result for {fits.topic}, limit {fits.limit}")
    return above.frame.with_column(REASON, F.when(does_not_fit, said))


def in_range(node: Node, above: Rows) -> Rows:
    """The rows ``above`` that ``node`` processes."""
    reached = in_range_or_not(node, above)
    return above if reached is None else above.with_frame(above.node, returned(reached))


def or_deleted(node: Filter, above: Rows) -> Rows:
    """The rows ``above`` as they leave ``node`` where all had left before: as deletions, unless they pass."""
    return above.with_frame(node, above.frame.with_column(IS_NULL, F.col(IS_NULL) | ~_passes(node)), "records")


def _passes(node: Filter) -> Column:
    return F.coalesce(column(node.predicate, node.input.fields), F.lit(False))


def _merged(node: Merge, frames: list[Frame]) -> Frame:
    """All rows; those that one record led to are in the order in which the paths parted, then in that of the inputs."""
    merged = None
    for port, frame in enumerate(frames):
        said = frame if node.names is None else frame.with_column(MERGED_FROM, F.lit(node.names[port]))
        part = shaped(said.with_column(ORDER, after(F.col(ORDER), F.lit(port))), node.fields)
        merged = part if merged is None else merged.union(part)
    assert merged is not None
    return merged


def flat_mapped(node: FlatMap, frame: Frame) -> Frame:
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

    return frame.passed_through(mapped, schema)


def raised(row: Mapping[str, Any], operator: str, error: Exception) -> dict[str, Any]:
    """The row in place of ``row``, for which a function of ``operator`` raised; raises where no record is set aside."""
    if row[OFFSET] is None or not sets_aside(error):
        raise error
    return {**{name: row[name] for name in META}, REASON: reason_for(operator, error)}


def with_reason(schema: T.StructType) -> T.StructType:
    """``schema``, and ``REASON``."""
    return T.StructType([*schema.fields, T.StructField(REASON, T.StringType())])


def returned(frame: Frame) -> Frame:
    """The rows that functions returned."""
    return frame.where(F.col(REASON).is_null()).drop(REASON)


def within(row: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The ``META`` of the row number ``index`` that was made of ``row``."""
    return {**{name: row[name] for name in META}, ORDER: [*row[ORDER], {"topic": "", "partition": index, "offset": 0}]}


def row_schema(fields: Mapping[str, FieldType], frame: Frame) -> T.StructType:
    """The columns ``fields`` and ``META``, these as ``frame`` has them."""
    declared = [T.StructField(name, spark_type(kind)) for name, kind in fields.items()]
    return T.StructType([*declared, *(T.StructField(name, frame.schema[name].dataType) for name in META)])


def tried(node: WindowedAggregate, placed: Frame, window: tuple[str, str]) -> Frame:
    """The ``placed`` rows with ``PASSED_OVER``, and ``REASON`` where there are such folds, null elsewhere.

    ``window`` names the columns of its bounds. Columns ``BEFORE``, where rows have them, say what the records before
    them amount to.
    """
    folds = {name: aggregate for name, aggregate in node.aggregates.items() if aggregate.fold is not None}
    values = {_given(name): F.when(_takes(one, node), F.struct(_value(one, node))) for name, one in folds.items()}
    gap_ms = node.windows.gap_ms if isinstance(node.windows, SessionWindows) else None
    operator = node.in_reasons

    def of_one_partition(rows: pa.Table) -> pa.Table:
        passed_over: list[list[str]] = [[] for _ in range(rows.num_rows)]
        reasons: list[str | None] = [None] * rows.num_rows
        places = [[tuple(step.values()) for step in order] for order in rows.column(ORDER).to_pylist()]
        is_record = rows.column(OFFSET).is_valid().to_pylist()
        turns = [number for number in sorted(range(rows.num_rows), key=places.__getitem__) if is_record[number]]
        times = rows.column(TIME).to_pylist()
        for name, aggregate in folds.items():
            assert aggregate.fold is not None
            attempt = Attempt(aggregate.fold, gap_ms, _before(rows, name))
            given = rows.column(_given(name)).to_pylist()
            for number in turns:
                if given[number] is None:
                    continue
                try:
                    attempt.add(times[number], given[number]["value"])
                except Exception as error:
                    if not sets_aside(error):
                        raise
                    passed_over[number].append(name)
                    reasons[number] = min(filter(None, (reasons[number], reason_for(operator, error))))
        kept = rows.drop_columns([_given(name) for name in folds])
        kept = kept.append_column(PASSED_OVER, pa.array(passed_over, pa.list_(pa.string())))
        return kept.append_column(REASON, pa.array(reasons, pa.string()))

    schema = T.StructType(
        [
            *placed.schema.fields,
            T.StructField(PASSED_OVER, T.ArrayType(T.StringType())),
            T.StructField(REASON, T.StringType()),
        ]
    )
    return in_groups(placed.with_columns(values), [node.key, *window, TOPIC, PARTITION], of_one_partition, schema)


def _before(rows: pa.Table, name: str) -> Amount | None:
    """All rows of a key say the same."""
    if BEFORE + name not in rows.column_names:
        return None
    said = rows.column(BEFORE + name)[0].as_py()
    return None if said is None else Amount(said["value"])


def _given(name: str) -> str:
    return f"__given_{name}"


def _value(aggregate: Aggregate, node: WindowedAggregate) -> Column:
    assert aggregate.of is not None
    return column(aggregate.of, node.input.fields).alias("value")


def _takes(aggregate: Aggregate, node: WindowedAggregate) -> Column:
    if aggregate.where is None:
        return F.lit(True)
    return F.coalesce(column(aggregate.where, node.input.fields), F.lit(False))
