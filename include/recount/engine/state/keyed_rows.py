"""Rows of an operator's state under a unique identity, which of them a batch has changed, and how much is kept.

Rows are kept in runs. A row that is replaced or removed is hidden in its run; a row is found by a binary search in the
sorted hashes of some of its columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import Any

import numpy as np
import polars as pl

_GROWTH = 4
"""A run that is not small holds at least this many times the rows of the one after it, or as many as it may."""
_SEARCHED_SHARE = 8
"""Where more than one in so many rows is asked for, a look at each costs less than a search for each."""
_PLACE = "__place_in_run"
DELETED = "deleted"
ARRIVED, NUMBER = "arrived", "number"
"""Columns that number the rows that an operator holds, in the order in which they came."""
ARRIVED_TYPE = pl.Int64()


def hash_of(columns: Sequence[str]) -> pl.Expr:
    """One number for the values of ``columns``, null or not; equal values have equal ones, others seldom."""
    return reduce(xor, (pl.col(name).hash(seed) for seed, name in enumerate(columns)))


def places_of(wanted: pl.Series, hashes: pl.Series) -> pl.Series:
    """Where in the sorted ``hashes`` those ``wanted`` are; sorted needles find the processor's cache warm."""
    needles = wanted.unique().sort()
    first, end = hashes.search_sorted(needles, "left"), hashes.search_sorted(needles, "right")
    return pl.select(pl.int_ranges(first, end)).to_series().explode().drop_nulls()


@dataclass(frozen=True, kw_only=True)
class RunSizes:
    """How many rows runs have.

    ``small``: a look at each of fewer rows, or their copy, costs less than to search them. ``most``: runs are not
    joined to one of more rows, so that a batch copies no more at once, and memory holds no more twice.
    """

    small: int = 20_000
    most: int = 1_000_000

    def cut(self, rows: pl.DataFrame) -> Iterator[Run]:
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
    """The hashes of some columns of all rows of a run, sorted, and the row of each.

    ``starts`` says where the hashes begin that have the same first bits: about one, so that no search is needed.
    """

    hashes: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    shift: np.uint64

    @classmethod
    def of(cls, hashes: pl.Series) -> _Index:
        rows, bits = hashes.arg_sort(), max(len(hashes).bit_length(), 1)
        found, shift = hashes[rows].to_numpy(), np.uint64(64 - bits)
        ends = np.bincount((found >> shift).astype(np.int64), minlength=2**bits).cumsum()
        return cls(found, rows.to_numpy(), np.concatenate([[0], ends]).astype(np.uint32), shift)

    def find(self, needles: np.ndarray) -> np.ndarray:
        """The rows that have one of the hashes ``needles``."""
        bucket = (needles >> self.shift).astype(np.int64)
        first = self.starts[bucket].astype(np.int64)
        many = self.starts[bucket + 1] - first
        there = np.arange(many.sum()) + (first - many.cumsum() + many).repeat(many)
        found: np.ndarray = self.rows[there[self.hashes[there] == needles.repeat(many)]]
        return found


class Run:
    """The rows ``given``, but those that were hidden since, in their order.

    Rows are found by the values of any columns: the first time a run that is not small is asked by them, it sorts their
    hashes (16 to 20 bytes a row).
    """

    def __init__(self, given: pl.DataFrame, small: int) -> None:
        self._given = given
        self._is_small = given.height < small
        self._is_visible: np.ndarray | None = None
        self._hidden = 0
        self._lowest: dict[str, Any] = {}
        self._highest: dict[str, int] = {}
        self._indexes: dict[tuple[str, ...], _Index] = {}

    @property
    def height(self) -> int:
        return self._given.height - self._hidden

    @property
    def bytes(self) -> int:
        """Memory of its rows, hidden ones too, without the indexes."""
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

    def lowest(self, column: str) -> int | None:
        """The lowest number in ``column``, be its row hidden or not, None without any; it is looked for once."""
        if column not in self._lowest:
            self._lowest[column] = self._given[column].min()
        found = self._lowest[column]
        assert found is None or isinstance(found, int), column
        return found

    def highest(self, column: str) -> int:
        """The highest number in ``column``, be its row hidden or not; it is looked for once."""
        if column not in self._highest:
            found = self._given[column].max()
            assert isinstance(found, int), column
            self._highest[column] = found
        return self._highest[column]

    def candidates(self, on: Sequence[str], needles: np.ndarray) -> np.ndarray:
        """Where rows lie that may have one of the ``needles``, each there once, as the hash of their columns ``on``.

        These are all where that is cheaper to say.
        """
        if self._is_small or len(needles) * _SEARCHED_SHARE > self._given.height:
            every = np.arange(self._given.height)
            return every if self._is_visible is None else every[self._is_visible]
        found = self._index(on).find(needles)
        return found if self._is_visible is None else found[self._is_visible[found]]

    def at(self, places: np.ndarray, columns: Sequence[str]) -> pl.DataFrame:
        return self._given.select(columns)[places]

    def hide(self, places: np.ndarray) -> None:
        """Have the rows at ``places``, which are to be seen now, no longer."""
        if not len(places):
            return
        if self._is_visible is None:
            self._is_visible = np.ones(self._given.height, np.bool_)
        self._is_visible[places] = False
        self._hidden += len(places)

    def _index(self, on: Sequence[str]) -> _Index:
        if tuple(on) not in self._indexes:
            self._indexes[tuple(on)] = _Index.of(self._given.select(hash_of(on)).to_series())
        return self._indexes[tuple(on)]


@dataclass(frozen=True, kw_only=True)
class StateUse:
    """``rows`` and ``bytes`` that are kept in memory now; ``puts`` and ``gets`` count rows since the driver started.

    A put is a row that was written, or forgotten; a get is an identity that was looked for. Looks at all rows, as for
    those that are due, count as none.
    """

    rows: int
    bytes: int
    puts: int
    gets: int


_SIZES = RunSizes()
_ALL = pl.lit(value=True)


class KeyedRows:
    """Rows with the columns of ``schema``, one for each value of the columns ``identity`` (which may be null).

    ``put`` and ``remove`` change them; ``changes`` tells, once, what became of every identity that was touched, so that
    a state table that gets all changes in order holds the same rows.

    What a batch puts, removes and finds costs in proportion to that and not to the rows that there are: they lie in
    runs (``Run``), of which a search finds some. ``rows`` and ``where`` look at all. Everywhere the rows come in
    the order in which they were put last. ``copied`` counts the rows that were copied to have few runs.
    """

    def __init__(self, schema: Mapping[str, pl.DataType], identity: Sequence[str], sizes: RunSizes = _SIZES) -> None:
        self._sizes = sizes
        self.schema = dict(schema)
        self.identity = list(identity)
        self.copied = 0
        self._puts = self._gets = 0
        self._runs: list[Run] = []
        self._changed: list[pl.DataFrame] = []

    @property
    def height(self) -> int:
        return sum(run.height for run in self._runs)

    @property
    def use(self) -> StateUse:
        """How much is kept, and how much it was used. May be asked while a batch is processed."""
        runs = self._runs
        return StateUse(
            rows=sum(run.height for run in runs), bytes=sum(run.bytes for run in runs), puts=self._puts, gets=self._gets
        )

    @property
    def runs(self) -> int:
        """How many runs a search looks into."""
        return len(self._runs)

    @property
    def rows(self) -> pl.DataFrame:
        return self._concatenated([run.rows for run in self._runs])

    def where(self, condition: pl.Expr) -> pl.DataFrame:
        """The rows for which ``condition``, on the columns of a row by itself, holds; no others are copied."""
        return self._concatenated([run.where(condition) for run in self._runs])

    def until(self, column: str, bound: int | None, which: pl.Expr = _ALL) -> pl.DataFrame:
        """The rows whose number in ``column`` is ``bound`` at most and for which ``which`` holds; None: there are none.

        Runs that have no such number are not looked at, so that it costs little where rows come by it.
        """
        if bound is None:
            return self._concatenated([])
        lowest = [(run, run.lowest(column)) for run in self._runs]
        concerned = [run for run, least in lowest if least is not None and least <= bound]
        return self._concatenated([run.where((pl.col(column) <= bound) & which) for run in concerned])

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
        if not self._are_later(new):
            self._hide(new.select(self.identity))
        self._changed.append(new.with_columns(pl.lit(False).alias(DELETED)))
        self._settle([*self._runs, *self._sizes.cut(new)])

    def remove(self, rows: pl.DataFrame) -> None:
        """Forget the rows with the identities of ``rows``."""
        if rows.is_empty():
            return
        gone = rows.select(self.identity).unique(maintain_order=True)
        self._puts += gone.height
        self._hide(gone)
        lacking = [pl.lit(None, kind).alias(name) for name, kind in self.schema.items() if name not in self.identity]
        deleted = gone.with_columns(*lacking, pl.lit(True).alias(DELETED))
        self._changed.append(deleted.select(*self.schema, DELETED))
        self._settle(self._runs)

    def changes(self) -> pl.DataFrame:
        """Every row touched since the last call as it is now; a removed one is ``deleted``, with its identity only."""
        changed, self._changed = self._changed, []
        if len(changed) == 1:
            return changed[0]
        found = pl.concat([pl.DataFrame(schema={**self.schema, DELETED: pl.Boolean()}), *changed])
        return found.unique(self.identity, keep="last", maintain_order=True)

    def load(self, rows: pl.DataFrame) -> None:
        """Start from ``rows``, as after the batches that made them."""
        self._changed = []
        self._settle(list(self._sizes.cut(rows.select(list(self.schema)))))

    def _at(self, asked: pl.DataFrame) -> pl.DataFrame:
        """The rows that agree with one of ``asked``, which are unique, in all columns of these."""
        columns = list(self.schema)
        return self._concatenated([run.at(places, columns) for run, places in self._places(asked) if len(places)])

    def _places(self, asked: pl.DataFrame) -> Iterator[tuple[Run, np.ndarray]]:
        """Each run, and where its rows lie that agree with one of ``asked``, which are unique, in all columns of it."""
        if asked.is_empty() or not self._runs:
            return
        on = asked.columns
        needles = np.unique(asked.select(hash_of(on)).to_series().to_numpy())
        near = [run.candidates(on, needles) for run in self._runs]
        places = np.concatenate(near)
        rows = pl.concat([run.at(some, on) for run, some in zip(self._runs, near, strict=True)])
        numbers = pl.int_range(pl.len()).alias(_PLACE)
        found = rows.with_columns(numbers).join(asked, on=on, how="semi", nulls_equal=True)[_PLACE].sort().to_numpy()
        ends = np.cumsum([len(some) for some in near])
        for run, mine in zip(self._runs, np.split(found, np.searchsorted(found, ends[:-1])), strict=True):
            yield run, np.sort(places[mine])

    def _are_later(self, rows: pl.DataFrame) -> bool:
        """Whether ``rows`` are numbered as they arrive, and come after all that there have been."""
        if self.identity != [ARRIVED]:
            return False
        first = rows[ARRIVED].min()
        return isinstance(first, int) and first > self.highest(ARRIVED)

    def _hide(self, identities: pl.DataFrame) -> None:
        for run, places in self._places(identities):
            run.hide(places)

    def _settle(self, runs: list[Run]) -> None:
        self._runs, copied = self._sizes.settled(runs)
        self.copied += copied

    def _concatenated(self, parts: list[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat(parts) if parts else pl.DataFrame(schema=self.schema)


def numbered(rows: pl.DataFrame, held: KeyedRows) -> pl.DataFrame:
    """``rows`` with ``ARRIVED``, each number higher than any in ``held``."""
    first = held.highest(ARRIVED) + 1
    return rows.with_columns(pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias(ARRIVED))
