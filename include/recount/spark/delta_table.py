"""A Delta table that one process appends to, each batch at most once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

LEDGER_PROPERTIES = {
    "delta.logRetentionDuration": "interval 3650 days",
    "delta.enableExpiredLogCleanup": "false",
}
"""The commits of the state table are the batch ledger: Delta must not clean them away after its usual 30 days."""

_SQL_TYPES = {pl.String(): "STRING", pl.Int64(): "BIGINT", pl.Int32(): "INT", pl.Float64(): "DOUBLE"}


@dataclass(frozen=True, kw_only=True)
class AppendOnlyTable:
    """The table at ``path`` with the columns of ``schema``; ``partitioned_by`` names partition columns."""

    session: SparkSession
    path: str
    schema: Mapping[str, pl.DataType]
    partitioned_by: Sequence[str] = ()

    def create(self) -> None:
        """Create the table unless it exists."""
        if DeltaTable.isDeltaTable(self.session, self.path):
            return
        builder = DeltaTable.createIfNotExists(self.session).location(self.path)
        for name, kind in self.schema.items():
            builder = builder.addColumn(name, _sql_type(kind))
        for name, value in LEDGER_PROPERTIES.items():
            builder = builder.property(name, value)
        builder.partitionedBy(*self.partitioned_by).execute()

    def append(self, rows: pl.DataFrame, *, writer: str, version: int, metadata: str | None = None) -> None:
        """Append ``rows`` in one commit that carries ``metadata``.

        Delta skips the commit when ``writer`` has already committed ``version`` or a later one: a replay changes
        nothing. Give each new sequence of versions a writer name of its own.
        """
        frame = self.session.createDataFrame(rows.select(list(self.schema)).to_arrow()).coalesce(1)
        options = {"txnAppId": writer, "txnVersion": str(version)}
        if metadata is not None:
            options["userMetadata"] = metadata
        frame.write.format("delta").mode("append").options(**options).save(self.path)

    def read(self) -> DataFrame:
        """All rows."""
        return self.session.read.format("delta").load(self.path)


def to_polars(frame: DataFrame, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """The rows of ``frame`` on the driver, with the columns and types of ``schema``."""
    rows = pl.from_arrow(frame.select(*schema).toArrow())
    assert isinstance(rows, pl.DataFrame)
    return rows.cast(dict(schema))  # type: ignore[arg-type]


def _sql_type(kind: pl.DataType) -> str:
    if isinstance(kind, pl.Decimal):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _SQL_TYPES[kind]
