"""The upkeep of a stream's tables by the stream itself, off the path of its batches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context

from recount.spark.delta_table import AppendOnlyTable
from recount.spark.ledger_table import LedgerTable

_LOG = logging.getLogger(__name__)

BATCHES_BETWEEN = 100


class Compaction:
    """Every ``BATCHES_BETWEEN`` batches: removes old rows, joins small files, moves proofs to the ledger, forgets old
    commits.

    The stream does it because a table has one writing process; it runs beside the next batches, whose appends Delta
    does not set against it. A failure is logged and the next round tries again: nothing depends on it but speed.
    """

    def __init__(
        self, tables: Sequence[AppendOnlyTable], state: AppendOnlyTable, ledger: LedgerTable, trim: Callable[[], None]
    ) -> None:
        self._tables = [*tables, ledger.table]
        self._state = state
        self._ledger = ledger
        self._trim = trim
        self._thread: threading.Thread | None = None

    def batch_appended(self, batch: int) -> None:
        """Start a round when it is time by the number of the ``batch``, and the last one is over."""
        if (batch + 1) % BATCHES_BETWEEN or (self._thread and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=copy_context().run, args=(self.round,), name="compaction", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until the round at work is over."""
        if self._thread:
            self._thread.join()

    def round(self) -> None:
        """One round."""
        _tried(self._trim, f"removing old rows beside {self._state.path}")
        for table in [*self._tables, self._state]:
            _tried(table.compact, f"compaction of {table.path}")
        for table in self._tables:
            _tried(table.forget_commits, f"forgetting old commits of {table.path}")
        _tried(self._move_proofs, f"moving the proofs of {self._state.path}")

    def _move_proofs(self) -> None:
        """A commit of the state table is forgotten only when its proof is known to be in the ledger."""
        moved = self._ledger.move()
        self._state.forget_commits(before=moved)


def _tried(step: Callable[[], None], what: str) -> None:
    try:
        step()
    except Exception:
        _LOG.warning("%s failed", what, exc_info=True)
