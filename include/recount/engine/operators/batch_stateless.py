"""Operators without state: what leaves keeps its place in the log, and so its stream time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from recount.declare.columns import IS_NULL, REVISION
from recount.declare.expressions import Expression
from recount.declare.functions import failed
from recount.declare.operators.nodes import Filter, SelectKey, Sink, Stateless, WithFields
from recount.declare.operators.placement import can_be_withdrawn
from recount.declare.operators.stateless import MERGED_FROM, FlatMap, Foreach, Merge, Peek, Repartition, Select, Through
from recount.engine.commit.output_records import passing
from recount.engine.operators.batch_operator import PLACE, TURN, Batch, Clock, Output, current
from recount.engine.operators.batch_rows import META, ORDER, WITHIN, nth, place_of, rows_schema
from recount.engine.operators.folds import frame_of, python_rows
from recount.engine.operators.set_aside import SetAside
from recount.engine.stage.polars_expressions import compiled, field_column, polars_type
from recount.engine.state.keyed_rows import KeyedRows

_OF_TURN = "__turn "
_FIRST_PLACE = r"^([^\x00]+\x00\d{29})"
"""Of an ``order``: the record of the log that made the row, or the first of several; none of a window's result."""
RowByRow = Filter | WithFields | SelectKey | Select | Repartition | Sink | Through
"""Operators that need nothing but the row at hand, and no Python function."""


@dataclass(kw_only=True)
class StatelessOperator:
    """Any operator that looks at one row at a time, sinks included: rows pass a sink as they are.

    Expressions of a null value see null fields, the key apart.
    """

    node: Stateless | Sink
    states: Mapping[str, KeyedRows] = field(default_factory=dict)
    clocks: Mapping[str, Clock] = field(default_factory=dict)

    def process(self, batch: Batch, inputs: Sequence[pl.DataFrame]) -> Output:
        rows = inputs[0]
        match self.node:
            case Filter() as node:
                return _filtered(node, rows)
            case FlatMap() as node:
                return _flat_mapped(node, rows)
            case Merge() as node:
                return Output(_merged(node, inputs, batch))
            case Foreach(action=action):
                _show(self.node, action, rows)
                return _counted(rows, leaving=rows.clear())
            case Peek(action=action):
                _show(self.node, action, rows)
            case Sink() | Through():
                written = current(rows)
                return _counted(written, leaving=written)
            case node:
                return Output(alone(node, rows))
        return Output(rows)


def alone(node: RowByRow, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows that leave ``node``, which needs nothing but the row at hand; a sink lets rows pass."""
    match node:
        case Filter():
            return rows.filter(passing(node, rows))
        case WithFields(added=added):
            return _computed(node, rows, added)
        case SelectKey(key=key, by=by):
            return _computed(node, rows, {key: by})
        case Select(chosen=chosen):
            return _computed(node, rows, chosen)
    return rows


def _computed(node: RowByRow, rows: pl.DataFrame, added: Mapping[str, Expression]) -> pl.DataFrame:
    columns = [
        # the null constant has no type of its own
        compiled(tree, node.input.fields).cast(polars_type(node.fields[name])).alias(field_column(name))
        for name, tree in added.items()
    ]
    return rows.with_columns(columns).select(list(rows_schema(node.fields)))


def _counted(rows: pl.DataFrame, leaving: pl.DataFrame) -> Output:
    output = Output(leaving)
    output.note(rows, "counted")
    return output


def _filtered(node: Filter, rows: pl.DataFrame) -> Output:
    """Filtered rows; a result that can be withdrawn and no longer passes leaves as a deletion of the one before."""
    if not can_be_withdrawn(node.input):
        return Output(alone(node, rows))
    passes = passing(node, rows)
    left = rows.filter(passes | (pl.col(REVISION) > 0))
    return Output(left.with_columns(pl.col(IS_NULL) | ~passes))


def _show(node: Peek, action: Callable[[Mapping[str, Any]], None], rows: pl.DataFrame) -> None:
    """An action is outside exactly-once: one that raises stops the stream."""
    for index, row in enumerate(python_rows(rows, node.fields)):
        try:
            action(row)
        except Exception as error:
            raise failed(node, place_of(rows.row(index, named=True), node.key), error) from error


def _flat_mapped(node: FlatMap, rows: pl.DataFrame) -> Output:
    """A null value passes as one row without fields; a record of which no row is made is filtered."""
    raised = SetAside(node)
    made: list[dict[str, Any]] = []
    sources: list[int] = []
    numbers: list[int] = []
    is_null = rows[IS_NULL].to_list()
    for index, row in enumerate(python_rows(rows, node.input.fields)):
        key = {node.key: row[node.key]}
        try:
            results = [{**result, **key} for result in ([{}] if is_null[index] else node.function(row))]
        except Exception as error:
            raised.add(rows.row(index, named=True), error)
            continue
        made += results
        sources += [index] * len(results)
        numbers += range(len(results))
    origin = pl.Series("index", sources, pl.Int64)
    meta = rows[origin].select(list(META)).with_columns(nth(pl.lit(pl.Series(numbers, dtype=pl.Int64))))
    leaving = pl.concat([frame_of(made, node.fields, node), meta], how="horizontal")
    return Output(leaving.select(list(rows_schema(node.fields))), raised=raised.rows)


def _merged(node: Merge, inputs: Sequence[pl.DataFrame], batch: Batch) -> pl.DataFrame:
    """In the order of reading: the rows that one record led to stay together, in the order in which they came about."""
    schema = rows_schema(node.fields)
    parts = []
    for port, rows in enumerate(inputs):
        added = {} if node.names is None else {field_column(MERGED_FROM): pl.lit(node.names[port])}
        lacking = {name: pl.lit(None, kind) for name, kind in schema.items() if name not in rows.columns}
        parts.append(rows.with_columns(**{**lacking, **added}).select(list(schema)))
    merged = pl.concat(parts)
    first = pl.col(ORDER).str.extract(_FIRST_PLACE).alias(PLACE)
    turns = batch.turns.rename({name: _OF_TURN + name for name in TURN})
    turned = merged.with_columns(first).join(turns, on=PLACE, how="left", maintain_order="left")
    ordered = turned.sort(*(_OF_TURN + name for name in TURN), ORDER, REVISION, WITHIN, maintain_order=True)
    return ordered.select(list(schema))
