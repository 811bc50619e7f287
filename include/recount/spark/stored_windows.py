"""The open windows of a stream that has just started, while they lie in its tables.

A batch needs those that it adds to, and finding a few by their keys is a fraction of reading all: so the first result
after a restart does not wait for the state. All of them are read beside the batches that follow.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future

import polars as pl

from recount.core.nodes import WINDOW_END
from recount.spark.background import in_background
from recount.spark.sorted_runs import SortedRuns

_LOG = logging.getLogger(__name__)

_PARTS = 8
"""In which all is read: a batch that needs Polars' threads waits for the part at hand, and memory holds one twice."""

ReadWindows = Callable[[pl.Expr], pl.DataFrame]
"""Given a condition on the rows of the state table: the windows made of those, merged, with their last revision."""


class StoredWindows:
    """The windows that ``read`` finds, of the key ``key``, to be held as in ``none``; what it finds must not change."""

    def __init__(self, key: str, none: SortedRuns, read: ReadWindows) -> None:
        self._key = key
        self._none = none
        self._read = read
        self._all: Future[SortedRuns] | None = None

    def of(self, wanted: pl.DataFrame) -> pl.DataFrame:
        """The windows of the keys and windows of ``wanted``."""
        if wanted.is_empty():
            return self._none.rows
        named = (pl.col(name).is_in(wanted[name].unique().implode()) for name in (WINDOW_END, self._key))
        return self._read(pl.all_horizontal(named)).join(wanted, on=[self._key, WINDOW_END], how="semi")

    def closing(self, closed: pl.Expr) -> bool:
        """Whether there are windows for which ``closed`` holds."""
        return not self._read(closed).is_empty()

    def begin(self) -> None:
        """Begin to read all, in a thread of its own; once."""
        if self._all is None:
            self._all = in_background("stored windows", self._read_all)

    @property
    def at_hand(self) -> bool:
        """Whether ``all`` need not wait."""
        return self._all is not None and self._all.done()

    def all(self) -> SortedRuns:
        """All windows."""
        self.begin()
        assert self._all is not None
        return self._all.result()

    def _read_all(self) -> SortedRuns:
        begun_s = time.monotonic()
        part_of = pl.col(self._key).hash() % _PARTS
        rows = pl.concat(self._read(part_of == part) for part in range(_PARTS))
        windows = self._none.put(rows)
        _LOG.info("recovered %d open windows in %.1f s", rows.height, time.monotonic() - begun_s)
        return windows
