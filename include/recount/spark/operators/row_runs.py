"""Rows that lie together: those that are replaced or removed are hidden, any is found by a search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from recount.spark.hash_search import hash_of, places_of

_GROWTH = 4
"""A run that is not small holds at least this many times the rows of the one after it, or as many as it may."""
_SEARCHED_SHARE = 8
"""Where more than one in so many rows is asked for, a look at each costs less than a search for each."""
_PLACE = "__place_in_run"


@dataclass(frozen=True, kw_only=True)
class RunSizes:
    """How many rows runs have.

    ``small``: a look at each of fewer rows, or their copy, costs less than to search them. ``most``: runs are not
    joined to one of more rows, so that a batch copies no more at once, and memory holds no more twice.
    """

    small: int = 20_000
    most: int = 1_000_000

    def cut(self, rows: pl.DataFrame) -> Iterator[Run]:
        """``rows`` as runs, none too long."""
        return (Run(part, self.small) for part in rows.iter_slices(self.most))

    def settled(self, runs: Sequence[Run]) -> tuple[list[Run], int]:
        """``runs`` with hollow ones copied and short ones joined to those before them; and how many rows were copied.

        Small runs are always joined, others when they have grown in proportion, so that a row is copied seldom and
        there are few runs to search (the logarithmic method of Bentley and Saxe, 1980). The order of rows stays.
        """
        kept: list[Run] = []
        copied = 0
        for run in runs:
            last = [run]
            while kept and self._belong_together(kept[-1].height, sum(one.height for one in last)):
                last.insert(0, kept.pop())
            if len(last) > 1 or run.is_hollow:
                joined = Run(pl.concat([one.rows for one in last], rechunk=True), self.small)
                copied += joined.height
                last = [joined]
            kept += [one for one in last if one.height]
        return kept, copied

    def _belong_together(self, lower: int, upper: int) -> bool:
        return lower + upper <= self.most and (lower < self.small or lower < _GROWTH * upper)


@dataclass(frozen=True)
class _Index:
    """The hashes of some columns of all rows of a run, sorted, and the row of each."""

    hashes: pl.Series
    rows: pl.Series


class Run:
    """The rows ``given``, but those that were hidden since, in their order.

    Rows are found by the values of any columns: the first time a run that is not small is asked by them, it sorts their
    hashes (12 bytes a row).
    """

    def __init__(self, given: pl.DataFrame, small: int) -> None:
        self._given = given
        self._is_small = given.height < small
        self._is_visible: np.ndarray | None = None
        self._hidden = 0
        self._highest: dict[str, int] = {}
        self._indexes: dict[tuple[str, ...], _Index] = {}

    @property
    def height(self) -> int:
        """How many rows it has."""
        return self._given.height - self._hidden

    @property
    def bytes(self) -> int:
        """What its rows take in memory, hidden ones too, without the indexes."""
        return int(self._given.estimated_size())

    @property
    def is_hollow(self) -> bool:
        """Whether more of its rows are hidden than not."""
        return self._hidden > self.height

    @property
    def rows(self) -> pl.DataFrame:
        """All its rows; copied only where some are hidden."""
        return self._given if self._is_visible is None else self._given.filter(self._is_visible)

    def where(self, condition: pl.Expr) -> pl.DataFrame:
        """The rows for which ``condition``, on the columns of a row by itself, holds."""
        return self._given.filter(*([] if self._is_visible is None else [self._is_visible]), condition)

    def highest(self, column: str) -> int:
        """The highest number in ``column``, be its row hidden or not; it is looked for once."""
        if column not in self._highest:
            found = self._given[column].max()
            assert isinstance(found, int), column
            self._highest[column] = found
        return self._highest[column]

    def places(self, wanted: pl.DataFrame) -> pl.Series:
        """Where the rows lie that agree with one of ``wanted``, which are unique, in all columns of these."""
        on, given = wanted.columns, self._given
        if self._is_small or wanted.height * _SEARCHED_SHARE > given.height:
            near = given.select(on).with_row_index(_PLACE)
        else:
            index = self._index(on)
            candidates = index.rows[places_of(wanted.select(hash_of(on)).to_series(), index.hashes)]
            near = given.select(on)[candidates].with_columns(candidates.alias(_PLACE))
        found = near.join(wanted, on=on, how="semi", nulls_equal=True)[_PLACE].sort()
        return found if self._is_visible is None else found.filter(self._is_visible[found.to_numpy()])

    def at(self, places: pl.Series) -> pl.DataFrame:
        """The rows at ``places``."""
        return self._given[places]

    def hide(self, places: pl.Series) -> None:
        """Have the rows at ``places``, which are to be seen now, no longer."""
        if places.is_empty():
            return
        if self._is_visible is None:
            self._is_visible = np.ones(self._given.height, np.bool_)
        self._is_visible[places.to_numpy()] = False
        self._hidden += places.len()

    def _index(self, on: Sequence[str]) -> _Index:
        if tuple(on) not in self._indexes:
            hashes = self._given.select(hash_of(on)).to_series()
            rows = hashes.arg_sort()
            self._indexes[tuple(on)] = _Index(hashes[rows].set_sorted(), rows)
        return self._indexes[tuple(on)]
