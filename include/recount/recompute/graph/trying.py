"""Reduce and fold tried with each record, after those of its own partition in its window, and what they pass over."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from recount.core.aggregates import Aggregate
from recount.core.nodes import WindowedAggregate
from recount.core.windows import SessionWindows
from recount.recompute.columns import column
from recount.recompute.graph.aggregates import BEFORE
from recount.recompute.graph.folding import Amount, Attempt
from recount.recompute.graph.rows import OFFSET, ORDER, PARTITION, TIME, TOPIC, in_groups
from recount.recompute.graph.stateless import REASON
from recount.recompute.rules.raising import reason_for, sets_aside

PASSED_OVER = "__passed_over"
"""The names of the folds that pass a row over."""


def tried(node: WindowedAggregate, placed: DataFrame, window: tuple[str, str]) -> DataFrame:
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
    return in_groups(placed.withColumns(values), [node.key, *window, TOPIC, PARTITION], of_one_partition, schema)


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
