"""Mergeable partial aggregates in Polars, by time window, and the topologies that tasks can reduce to them.

They merge in any grouping and order. Such a topology is a straight path to one aggregation over time windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from recount.declare.aggregates import Aggregate
from recount.declare.columns import BEYOND, RESULT_TIME, TIMESTAMP
from recount.declare.expression_types import type_of
from recount.declare.operators.keys_and_fields import columns_read
from recount.declare.operators.nodes import (
    KEY,
    WINDOW_END,
    WINDOW_START,
    Filter,
    Node,
    SelectKey,
    Sink,
    Source,
    WindowedAggregate,
    WithFields,
)
from recount.declare.schema import FieldType
from recount.declare.topology import Topology
from recount.declare.windows import TimeWindows
from recount.engine.stage.exact_sums import Carrier, Sum, fitted, grouped, widened
from recount.engine.stage.polars_expressions import compiled, field_column, polars_type
from recount.runtime.errors import Terminal

Step = Filter | WithFields | SelectKey
AGGREGATES = ("count", "sum", "min", "max")


@dataclass(frozen=True)
class Partials:
    """How the partials of one aggregation are made and merged; a partial has the columns of ``schema``."""

    key: str
    aggregates: Mapping[str, Aggregate]
    inputs: Mapping[str, FieldType]
    fields: Mapping[str, FieldType]

    @classmethod
    def of(cls, node: WindowedAggregate) -> Partials:
        """The partials of ``node``."""
        return cls(node.key, node.aggregates, node.input.fields, node.fields)

    @property
    def group(self) -> list[str]:
        """The columns that identify a result."""
        return [self.key, WINDOW_START, WINDOW_END]

    @cached_property
    def schema(self) -> dict[str, pl.DataType]:
        """The columns of a partial: sums are wider than their results, and can have something ``BEYOND``."""
        carriers = self._carriers
        wide = {name: one.total for name, one in carriers.items()}
        beyond = {BEYOND + name: one.beyond for name, one in carriers.items() if one.beyond is not None}
        return {**self.result_schema, **wide, **beyond}

    @cached_property
    def result_schema(self) -> dict[str, pl.DataType]:
        """The columns of a result."""
        return {**{name: polars_type(kind) for name, kind in self.fields.items()}, RESULT_TIME: pl.Int64()}

    def results(self, partials: pl.DataFrame) -> pl.DataFrame:
        """The results that ``partials`` make; raises ``SumTooLarge`` where a sum does not fit into its type."""
        columns = []
        for name, carrier in self._carriers.items():
            beyond = None if carrier.beyond is None else BEYOND + name
            told = partials.select(*self.group, name, *([] if beyond is None else [beyond]))
            columns.append(fitted(told, name, beyond, name, self.fields[name]))
        return partials.with_columns(columns).drop(set(self.schema) - set(self.result_schema))

    def empty(self) -> pl.DataFrame:
        """No partials."""
        return pl.DataFrame(schema=self.schema)

    def from_records(self, records: pl.DataFrame) -> pl.DataFrame:
        """One partial per key and window of ``records``, which carry the window's bounds."""
        # once for all rows: not each expression means the same within a group
        given = [
            self._of_record(name).alias(_given(name)) for name, one in self.aggregates.items() if one.of is not None
        ]
        records = records.with_columns(given)
        key = pl.col(field_column(self.key)).alias(self.key)
        latest = pl.col(TIMESTAMP).max().alias(RESULT_TIME)
        return self._grouped(records, key, latest, are_partials=False)

    def merge(self, partials: pl.DataFrame, *more: pl.Expr) -> pl.DataFrame:
        """One partial per key and window of ``partials``, with the columns that ``more`` makes of its rows."""
        return self._grouped(partials, pl.col(self.key), pl.col(RESULT_TIME).max(), *more, are_partials=True)

    @cached_property
    def _carriers(self) -> dict[str, Carrier]:
        """How each sum is carried."""
        return {
            name: Carrier.of(polars_type(self._given(one)))
            for name, one in self.aggregates.items()
            if one.kind == "sum"
        }

    def _given(self, aggregate: Aggregate) -> FieldType:
        given = None if aggregate.of is None else type_of(aggregate.of, self.inputs)
        assert given is not None, "refused at declaration"
        return given

    def _of_record(self, name: str) -> pl.Expr:
        """The values that a record adds to the aggregate ``name``."""
        of = self.aggregates[name].of
        assert of is not None, "refused at declaration"
        values = compiled(of, self.inputs)
        return widened(values, self.result_schema[name]) if self.aggregates[name].kind == "sum" else values

    def _grouped(self, rows: pl.DataFrame, key: pl.Expr, *more: pl.Expr, are_partials: bool) -> pl.DataFrame:
        sums, others = [], list(more)
        for name, aggregate in self.aggregates.items():
            if aggregate.kind == "count":
                others.append(pl.col(name).sum() if are_partials else pl.len().cast(self.schema[name]).alias(name))
                continue
            values = pl.col(name if are_partials else _given(name))
            if aggregate.kind == "sum":
                carrier, beyond = self._carriers[name], BEYOND + name
                known = pl.col(beyond) if are_partials and carrier.beyond is not None else None
                sums.append(Sum(carrier=carrier, values=values, total=name, beyond=beyond, more=known))
            else:
                extreme = values.min() if aggregate.kind == "min" else values.max()
                others.append(extreme.cast(self.schema[name]).alias(name))
        made = grouped(rows, [key, WINDOW_START, WINDOW_END], sums, *others)
        return made.select(*self.schema, pl.exclude(list(self.schema)))


def _given(name: str) -> str:
    """The column of what a record adds to the aggregate ``name``; no other column begins like this."""
    return f"given to {name}"


def with_windows(rows: pl.DataFrame, windows: TimeWindows) -> pl.DataFrame:
    """One row per row and window that holds it, by start, with the window's bounds."""
    time, first, advance = pl.col(TIMESTAMP), windows.first_start_ms, windows.advance_ms
    newest = time - (time - first) % advance
    if advance == windows.size_ms:
        placed = rows.with_columns(newest.alias(WINDOW_START))
    else:
        reach = (time - windows.size_ms + advance).clip(lower_bound=first)
        starts = pl.int_ranges(reach - (reach - first) % advance, newest + 1, advance)
        placed = rows.with_columns(starts.alias(WINDOW_START)).explode(WINDOW_START)
    return placed.with_columns((pl.col(WINDOW_START) + windows.size_ms).alias(WINDOW_END))


class NotExpressible(Terminal):
    """A topology that the Spark engine does not run."""


@dataclass(frozen=True, kw_only=True)
class AggregationPlan:
    """Source, stateless steps, one aggregation over time windows, one sink."""

    topology: Topology
    source: Source
    steps: tuple[Step, ...]
    aggregate: WindowedAggregate
    windows: TimeWindows
    sink: Sink

    @property
    def columns(self) -> list[str]:
        """The declared fields of the value that the steps and the aggregates read, and event time."""
        return columns_read(self.topology, self.source.topic)

    @property
    def uses_record_key(self) -> bool:
        """Whether records are grouped by their own key, so that one without a key is a bad record."""
        return self.aggregate.key == KEY


def plan_of(topology: Topology) -> AggregationPlan | None:
    """The plan of ``topology``; None where it has another shape: more than one sink, other operators or windows."""
    if len(topology.sinks) != 1 or topology.actions:
        return None
    [sink] = topology.sinks
    aggregate = sink.input
    windows = aggregate.windows if isinstance(aggregate, WindowedAggregate) else None
    if not isinstance(aggregate, WindowedAggregate) or not isinstance(windows, TimeWindows):
        return None
    if aggregate.emission.kind not in ("final", "each batch"):
        return None
    if any(each.kind not in AGGREGATES or each.where is not None for each in aggregate.aggregates.values()):
        return None
    steps: list[Step] = []
    node: Node = aggregate.input
    while isinstance(node, Filter | WithFields | SelectKey):
        steps.insert(0, node)
        node = node.input
    if not isinstance(node, Source):
        return None
    return AggregationPlan(
        topology=topology, source=node, steps=tuple(steps), aggregate=aggregate, windows=windows, sink=sink
    )
