"""Operators without state: what leaves keeps its place in the log, and so its stream time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from recount.core.expressions import Expression
from recount.core.nodes import Filter, SelectKey, Sink, Stateless, WithFields
from recount.core.schema import FieldType
from recount.core.stateless import MERGED_FROM, FlatMap, Foreach, Merge, Peek, Select, Through
from recount.spark.columns import IS_NULL, REVISION
from recount.spark.operators.clock import Batch, Clock
from recount.spark.operators.keyed_rows import KeyedRows
from recount.spark.operators.lateness import current
from recount.spark.operators.operator import Output
from recount.spark.operators.python_rows import frame_of, python_rows
from recount.spark.operators.rows import META, ORDER, WITHIN, nth, rows_schema
from recount.spark.polars_expressions import compiled, field_column, polars_type


@dataclass(kw_only=True)
class StatelessOperator:
    """Any operator that looks at one row at a time, sinks included: rows pass a sink as they are.

    Expressions of a null value see null fields, the key apart.
    """

    node: Stateless | Sink
    states: Mapping[str, KeyedRows] = field(default_factory=dict)
    clocks: Mapping[str, Clock] = field(default_factory=dict)

    def process(self, batch: Batch, inputs: Sequence[pl.DataFrame]) -> Output:  # noqa: ARG002 - time does not matter
        """What the operator makes of the rows."""
        rows = inputs[0]
        match self.node:
            case Filter() as node:
                return _filtered(node, rows)
            case WithFields(added=added):
                return Output(self._computed(rows, added))
            case SelectKey(key=key, by=by):
                return Output(self._computed(rows, {key: by}))
            case Select(chosen=chosen):
                return Output(self._computed(rows, chosen))
            case FlatMap() as node:
                return _flat_mapped(node, rows)
            case Merge() as node:
                return Output(_merged(node, inputs))
            case Foreach(action=action):
                for row in python_rows(rows, self.node.input.fields):
                    action(row)
                return _counted(rows, leaving=rows.clear())
            case Peek(action=action):
                for row in python_rows(rows, self.node.fields):
                    action(row)
            case Sink() | Through():
                written = current(rows)
                return _counted(written, leaving=written)
        return Output(rows)

    def _computed(self, rows: pl.DataFrame, added: Mapping[str, Expression]) -> pl.DataFrame:
        assert not isinstance(self.node, Merge)
        given = self.node.input.fields
        columns = [_computed(tree, given, name, self.node.fields[name]) for name, tree in added.items()]
        return rows.with_columns(columns).select(list(rows_schema(self.node.fields)))


def _computed(tree: Expression, given: Mapping[str, FieldType], name: str, kind: FieldType) -> pl.Expr:
    # the null constant has no type of its own
    return compiled(tree, given).cast(polars_type(kind)).alias(field_column(name))


def _counted(rows: pl.DataFrame, leaving: pl.DataFrame) -> Output:
    output = Output(leaving)
    output.note(rows, "counted")
    return output


def _filtered(node: Filter, rows: pl.DataFrame) -> Output:
    passes = compiled(node.predicate, node.input.fields).cast(pl.Boolean).fill_null(False)
    marked = rows.with_columns(passes.alias("__passes"))
    output = Output(marked.filter("__passes").drop("__passes"))
    output.note(marked.filter(~pl.col("__passes")), "filtered")
    return output


def _flat_mapped(node: FlatMap, rows: pl.DataFrame) -> Output:
    """A null value passes as one row without fields; a record of which no row is made is filtered."""
    made: list[dict[str, Any]] = []
    sources: list[int] = []
    numbers: list[int] = []
    is_null = rows[IS_NULL].to_list()
    for index, row in enumerate(python_rows(rows, node.input.fields)):
        results = [{}] if is_null[index] else list(node.function(row))
        made += [{**result, node.key: row[node.key]} for result in results]
        sources += [index] * len(results)
        numbers += range(len(results))
    origin = pl.Series("index", sources, pl.Int64)
    meta = rows[origin].select(list(META)).with_columns(nth(pl.lit(pl.Series(numbers, dtype=pl.Int64))))
    leaving = pl.concat([frame_of(made, node.fields, node), meta], how="horizontal")
    output = Output(leaving.select(list(rows_schema(node.fields))))
    barren = rows.with_row_index().filter(~pl.col("index").is_in(origin.unique().to_list())).drop("index")
    output.note(barren, "filtered")
    return output


def _merged(node: Merge, inputs: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """In log order: the rows that one record led to stay together, in the order in which they came about."""
    schema = rows_schema(node.fields)
    parts = []
    for port, rows in enumerate(inputs):
        added = {} if node.names is None else {field_column(MERGED_FROM): pl.lit(node.names[port])}
        lacking = {name: pl.lit(None, kind) for name, kind in schema.items() if name not in rows.columns}
        parts.append(rows.with_columns(**{**lacking, **added}).select(list(schema)))
    return pl.concat(parts).sort(ORDER, REVISION, WITHIN, maintain_order=True)
