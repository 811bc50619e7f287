"""What an operator remembers: rows under a unique identity, and which of them a batch has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from recount.spark.operators.row_runs import Run, RunSizes
from recount.spark.state_use import StateUse

DELETED = "deleted"
_SIZES = RunSizes()
ARRIVED = "arrived"
"""The column that numbers the rows that an operator holds, in the order in which they came."""
ARRIVED_TYPE = pl.Int64()


class KeyedRows:
    """Rows with the columns of ``schema``, one for each value of the columns ``identity`` (which may be null).

    ``put`` and ``remove`` change them; ``changes`` tells, once, what became of every identity that was touched, so that
    a state table that gets all changes in order holds the same rows.

    What a batch puts, removes and finds costs in proportion to that and not to the rows that there are: they lie in
    runs (``row_runs``), of which a search finds some. ``rows`` and ``where`` look at all. Everywhere the rows come in
    the order in which they were put last. ``copied`` counts the rows that were copied to have few runs.
    """

    def __init__(self, schema: Mapping[str, pl.DataType], identity: Sequence[str], sizes: RunSizes = _SIZES) -> None:
        self._sizes = sizes
        self.schema = dict(schema)
        self.identity = list(identity)
        self.copied = 0
        self._puts = self._gets = 0
        self._runs: list[Run] = []
        self._touched: list[pl.DataFrame] = []

    @property
    def height(self) -> int:
        """How many rows there are."""
        return sum(run.height for run in self._runs)

    @property
    def use(self) -> StateUse:
        """How much is kept, and how much it was used. May be asked while a batch is processed."""
        runs = self._runs
        return StateUse(
            rows=sum(run.height for run in runs),
            bytes=sum(run.bytes for run in runs),
            puts=self._puts,
            gets=self._gets,
        )

    @property
    def runs(self) -> int:
        """How many runs a search looks into."""
        return len(self._runs)

    @property
    def rows(self) -> pl.DataFrame:
        """All rows."""
        return self._concatenated([run.rows for run in self._runs])

    def where(self, condition: pl.Expr) -> pl.DataFrame:
        """The rows for which ``condition``, on the columns of a row by itself, holds; no others are copied."""
        return self._concatenated([run.where(condition) for run in self._runs])

    def highest(self, column: str) -> int:
        """A number that none in ``column`` is above, nor was in any row that is not yet copied away; -1 without any."""
        return max((run.highest(column) for run in self._runs), default=-1)

    def of(self, wanted: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
        """The rows that agree with one of ``wanted`` in the columns ``on``."""
        asked = wanted.select(on).unique()
        self._gets += asked.height
        return self._at(asked)

    def put(self, rows: pl.DataFrame) -> None:
        """Add ``rows``, each in place of the one with its identity; of two with one identity the later stays."""
        if rows.is_empty():
            return
        new = rows.select(list(self.schema)).unique(self.identity, keep="last", maintain_order=True)
        self._puts += new.height
        self._touch(new.select(self.identity))
        self._settle([*self._runs, *self._sizes.cut(new)])

    def remove(self, rows: pl.DataFrame) -> None:
        """Forget the rows with the identities of ``rows``."""
        if rows.is_empty():
            return
        gone = rows.select(self.identity).unique(maintain_order=True)
        self._puts += gone.height
        self._touch(gone)
        self._settle(self._runs)

    def changes(self) -> pl.DataFrame:
        """Every row touched since the last call as it is now; ``deleted`` where it is gone, with its identity only."""
        if not self._touched:
            return pl.DataFrame(schema={**self.schema, DELETED: pl.Boolean()})
        touched = pl.concat(self._touched).unique(maintain_order=True)
        self._touched = []
        found = touched.join(
            self._at(touched).with_columns(pl.lit(False).alias(DELETED)),
            on=self.identity,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        return found.with_columns(pl.col(DELETED).fill_null(True)).select(*self.schema, DELETED)

    def load(self, rows: pl.DataFrame) -> None:
        """Start from ``rows``, as after the batches that made them."""
        self._touched = []
        self._settle(list(self._sizes.cut(rows.select(list(self.schema)))))

    def _at(self, asked: pl.DataFrame) -> pl.DataFrame:
        """The rows that agree with one of ``asked``, which are unique, in all columns of these."""
        if asked.is_empty():
            return self._concatenated([])
        return self._concatenated([run.at(run.places(asked)) for run in self._runs])

    def _touch(self, identities: pl.DataFrame) -> None:
        """Hide the rows of ``identities``, and remember these for ``changes``."""
        for run in self._runs:
            run.hide(run.places(identities))
        self._touched.append(identities)

    def _settle(self, runs: list[Run]) -> None:
        self._runs, copied = self._sizes.settled(runs)
        self.copied += copied

    def _concatenated(self, parts: list[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat(parts) if parts else pl.DataFrame(schema=self.schema)


def numbered(rows: pl.DataFrame, held: KeyedRows) -> pl.DataFrame:
    """``rows`` with ``ARRIVED``, each number higher than any in ``held``."""
    first = held.highest(ARRIVED) + 1
    return rows.with_columns(pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias(ARRIVED))
