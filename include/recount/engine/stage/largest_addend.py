"""Which record of a batch adds most to a sum that is too large: asked once a stream has to stop for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from recount.declare.aggregates import Aggregate, SumTooLarge
from recount.declare.columns import TIMESTAMP
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START, WindowedAggregate
from recount.declare.schema import FieldType
from recount.declare.windows import GlobalWindow, LastN, TimeWindows
from recount.engine.stage.map_stage import MapStage, Partition, PartitionPass
from recount.engine.stage.partials import Partials
from recount.engine.stage.polars_expressions import compiled, field_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ADDED, _AMONG = "__added", "of the records of this batch"
_SCHEMA: dict[str, pl.DataType] = {
    "topic": pl.String(),
    "partition": pl.Int32(),
    "offset": pl.Int64(),
    _ADDED: pl.Float64(),
}


def with_record(error: SumTooLarge, rows: pl.DataFrame, node: WindowedAggregate) -> SumTooLarge:
    """``error`` of ``node`` with the record that adds most among the ``rows`` that a batch brought, if there is one."""
    here = pl.col(field_column(node.key)) == error.about[node.key]
    if not isinstance(node.windows, GlobalWindow | LastN):
        closed: Literal["left", "both"] = "left" if isinstance(node.windows, TimeWindows) else "both"
        start_ms, end_ms = (error.about[bound] for bound in (WINDOW_START, WINDOW_END))
        here &= pl.col(TIMESTAMP).is_between(start_ms, end_ms, closed=closed)
    return _naming(error, _addends(rows.filter(here), node.aggregates[error.aggregate], node.input.fields))


def with_record_of_log(error: SumTooLarge, records: DataFrame, stage: MapStage) -> SumTooLarge:
    """The same of the ``records`` of a batch, which ``stage`` has reduced to partials."""
    from recount.engine.exchange.work import staged

    made = AddendStage(plan=stage.plan, stream_times=stage.stream_times, latest_ms=stage.latest_ms, error=error)
    return _naming(error, staged(records, made)["addends"])


@dataclass(frozen=True, kw_only=True)
class AddendStage(MapStage):
    """The map stage again, for the records of the key and window of ``error``."""

    error: SumTooLarge

    def pass_of(self, partition: Partition) -> PartitionPass:
        """A pass that looks for the records."""
        return _AddendPass(self, partition)

    def empty_tables(self) -> dict[str, list[pl.DataFrame]]:
        """One more."""
        return {**super().empty_tables(), "addends": [pl.DataFrame(schema=_SCHEMA)]}


class _AddendPass(PartitionPass):
    def __init__(self, stage: AddendStage, partition: Partition) -> None:
        super().__init__(stage, partition)
        self._error = stage.error

    def reduce(self, on_time: pl.DataFrame) -> None:
        made, about = Partials.of(self._plan.aggregate), self._error.about
        here = pl.col(field_column(made.key)) == about[made.key]
        here &= pl.all_horizontal(pl.col(bound) == about[bound] for bound in (WINDOW_START, WINDOW_END))
        found = _addends(on_time.filter(here), made.aggregates[self._error.aggregate], made.inputs)
        self._tables["addends"].append(found)


def _addends(rows: pl.DataFrame, aggregate: Aggregate, inputs: Mapping[str, FieldType]) -> pl.DataFrame:
    """The addend of each of the ``rows`` that are records, as a DOUBLE."""
    assert aggregate.of is not None, "a sum is of something"
    counts = pl.lit(value=True) if aggregate.where is None else compiled(aggregate.where, inputs)
    added = rows.filter(counts & pl.col("offset").is_not_null()).with_columns(
        compiled(aggregate.of, inputs).cast(pl.Float64).alias(_ADDED)
    )
    return added.filter(pl.col(_ADDED).is_not_null()).select(pl.col(name).cast(kind) for name, kind in _SCHEMA.items())


def _naming(error: SumTooLarge, found: pl.DataFrame) -> SumTooLarge:
    if found.is_empty():
        return error
    topic, partition, offset, _ = found.sort(_ADDED, descending=not error.is_negative).row(0)
    return error.naming(f"{topic}-{partition}@{offset}", _AMONG)
