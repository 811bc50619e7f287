"""State tables of earlier releases, which had a row as JSON for each row of a state, in the form of today."""

from __future__ import annotations

import polars as pl
from deltalake import DeltaTable, write_deltalake

from recount.declare.columns import BATCH, GENERATION
from recount.engine.state.graph_state import AS_JSON, HEAD, PART, SNAPSHOT, STATE_SCHEMA, packed
from recount.engine.state.keyed_rows import DELETED

_BATCH = [GENERATION, BATCH]
_FORMER_HEADS = ("", "parts")
"""The states of the first row of a snapshot: of one part, and of several, whose number it had in ``row``."""


def bring_up(path: str) -> None:
    """Give the state table at ``path`` the form of today where it has that of an earlier release, in one commit.

    Does nothing where there is no table, or one of another form. The stream must be the only one that writes it.
    """
    if not DeltaTable.is_deltatable(path):
        return
    table = DeltaTable(path)
    if not {"identity", "row"} <= {field.name for field in table.schema().fields}:
        return
    former = pl.read_delta(path).sort(_BATCH, maintain_order=True)
    part = pl.col(PART).fill_null(0) if PART in former.columns else pl.lit(0, pl.Int32).alias(PART)
    is_head = pl.col("state").is_in(_FORMER_HEADS)
    groups = former.with_columns(part).group_by(*_BATCH, SNAPSHOT, PART, "state", maintain_order=True)
    made = [
        (HEAD, b"", int(rows["row"][0] or 1), *place)
        if rows.select(is_head.first()).item()
        else (state, packed(rows.select(pl.col("row").alias(AS_JSON), DELETED)), rows.height, *place)
        for (*order, is_snapshot, number, state), rows in groups
        for place in [(is_snapshot, number, *order)]
    ]
    columns = {**STATE_SCHEMA, GENERATION: pl.Int32(), BATCH: pl.Int64()}
    write_deltalake(table, pl.DataFrame(made, columns, orient="row"), mode="overwrite", schema_mode="overwrite")
