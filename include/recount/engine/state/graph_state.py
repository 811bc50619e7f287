"""State of the operators of a graph, as rows of the stream's state table and back.

A row says of one state row what it is now (``row``, JSON by column name) or that it is deleted (``deleted``); the last
one of an identity counts. Every now and then a batch writes the state whole: what is before such a *snapshot* is not
needed any more, so that the table stays in proportion to the state.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from recount.declare.columns import BATCH, GENERATION
from recount.engine.driver.signs_of_work import worked
from recount.engine.state.keyed_rows import DELETED, KeyedRows
from recount.runtime.errors import Terminal
from recount.tables.batch_proofs import earlier

SNAPSHOT = "snapshot"


STATE_SCHEMA: dict[str, pl.DataType] = {
    "state": pl.String(),
    "identity": pl.String(),
    "row": pl.String(),
    DELETED: pl.Boolean(),
    SNAPSHOT: pl.Boolean(),
}


_OF_NOTHING = pl.DataFrame({"state": [""], "identity": [""], "row": [""], DELETED: [True]})
"""The first row of a snapshot, which there is even when nothing is remembered."""


_ORDER = [GENERATION, BATCH]


_ROWS_PER_STATE_ROW = 4


_ROWS_AT_LEAST = 10_000


class GraphState:
    """Writes and reads ``states``, by name."""

    def __init__(self, states: Mapping[str, KeyedRows]) -> None:
        self._states = states
        self._written = 0

    def changes(self) -> pl.DataFrame:
        """Rows that the batch changed; or all rows, when much has been written since the last snapshot."""
        held = self.size
        if self._written > max(_ROWS_AT_LEAST, _ROWS_PER_STATE_ROW * held):
            self._written = 0
            for state in self._states.values():
                state.changes()
            whole = [_encoded(name, state, _kept(state.rows)) for name, state in self._states.items()]
            return _marked(pl.concat([_OF_NOTHING, *whole]), snapshot=True)
        parts = [_encoded(name, state, state.changes()) for name, state in self._states.items()]
        rows = pl.concat([_OF_NOTHING.clear(), *parts])
        self._written += rows.height
        return _marked(rows, snapshot=False)

    def load(self, since: pl.DataFrame) -> None:
        """Start from the rows ``since`` the last snapshot; raises ``Terminal`` for a state that no operator has."""
        self._written = since.height
        latest = since.unique(["state", "identity"], keep="last", maintain_order=True).filter(~pl.col(DELETED))
        unknown = set(since["state"].unique()) - self._states.keys() - {""}
        if unknown:
            raise Terminal(
                "the state of another topology",
                given=", ".join(sorted(unknown)),
                expected=", ".join(sorted(self._states)),
                remedy="give the changed topology a new name, or reset the stream",
            )
        for name, state in self._states.items():
            rows = latest.filter(pl.col("state") == name)["row"]
            state.load(rows.str.json_decode(pl.Struct(state.schema)).struct.unnest())
            worked()

    @property
    def size(self) -> int:
        """How many rows are remembered."""
        return sum(state.height for state in self._states.values())


def since_snapshot(written: pl.LazyFrame) -> pl.DataFrame:
    """The rows ``written`` so far that a start needs, in the order of their batches; no others are read."""
    snapshots = written.filter(SNAPSHOT).select(_ORDER).unique().sort(_ORDER).tail(1).collect()
    since = written if snapshots.is_empty() else written.filter(~earlier(snapshots.row(0)))
    return since.sort(_ORDER, maintain_order=True).collect()


def _kept(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.lit(False).alias(DELETED))


def _encoded(name: str, state: KeyedRows, rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(
        pl.lit(name).alias("state"),
        pl.struct(state.identity).struct.json_encode().alias("identity"),
        pl.struct(list(state.schema)).struct.json_encode().alias("row"),
        DELETED,
    )


def _marked(rows: pl.DataFrame, *, snapshot: bool) -> pl.DataFrame:
    return rows.with_columns(pl.lit(snapshot).alias(SNAPSHOT)).select(list(STATE_SCHEMA))
