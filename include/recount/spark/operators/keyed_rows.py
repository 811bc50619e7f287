"""What an operator remembers: rows under a unique identity, and which of them a batch has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

DELETED = "deleted"


class KeyedRows:
    """Rows with the columns of ``schema``, one for each value of the columns ``identity`` (which may be null).

    ``rows`` is the table now. ``put`` and ``remove`` change it; ``changes`` tells, once, what became of every identity
    that was touched, so that a state table that gets all changes in order holds the same rows.
    """

    def __init__(self, schema: Mapping[str, pl.DataType], identity: Sequence[str]) -> None:
        self.schema = dict(schema)
        self.identity = list(identity)
        self.rows = pl.DataFrame(schema=self.schema)
        self._touched: list[pl.DataFrame] = []

    def put(self, rows: pl.DataFrame) -> None:
        """Add ``rows``, each in place of the one with its identity; of two with one identity the later stays."""
        if rows.is_empty():
            return
        new = rows.select(list(self.schema)).unique(self.identity, keep="last", maintain_order=True)
        kept = self.rows.join(new, on=self.identity, how="anti", nulls_equal=True)
        self.rows = pl.concat([kept, new])
        self._touched.append(new.select(self.identity))

    def remove(self, rows: pl.DataFrame) -> None:
        """Forget the rows with the identities of ``rows``."""
        if rows.is_empty():
            return
        gone = rows.select(self.identity)
        self.rows = self.rows.join(gone, on=self.identity, how="anti", nulls_equal=True)
        self._touched.append(gone)

    def of(self, wanted: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
        """The rows that agree with one of ``wanted`` in the columns ``on``."""
        return self.rows.join(wanted.select(on).unique(), on=list(on), how="semi", nulls_equal=True)

    def changes(self) -> pl.DataFrame:
        """Every row touched since the last call as it is now; ``deleted`` where it is gone, with its identity only."""
        if not self._touched:
            return pl.DataFrame(schema={**self.schema, DELETED: pl.Boolean()})
        touched = pl.concat(self._touched).unique(maintain_order=True)
        self._touched = []
        found = touched.join(
            self.rows.with_columns(pl.lit(False).alias(DELETED)), on=self.identity, how="left", nulls_equal=True
        )
        return found.with_columns(pl.col(DELETED).fill_null(True)).select(*self.schema, DELETED)

    def load(self, rows: pl.DataFrame) -> None:
        """Start from ``rows``, as after the batches that made them."""
        self.rows = rows.select(list(self.schema))
        self._touched = []
