"""Compaction of a stream's tables by the stream itself, off the path of its batches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from recount.spark.delta_table import AppendOnlyTable

_LOG = logging.getLogger(__name__)

BATCHES_BETWEEN = 100


class Compaction:
    """Every ``BATCHES_BETWEEN`` batches, joins the small files that the batches wrote.

    The stream does it because a table has one writing process; it runs beside the next batches, whose appends Delta
    does not set against it. A failure is logged and the next round tries again: nothing depends on it but speed.
    """

    def __init__(self, tables: Sequence[AppendOnlyTable]) -> None:
        self._tables = tables
        self._batches = 0
        self._thread: threading.Thread | None = None

    def batch_appended(self) -> None:
        """Count a batch; start a round when it is time and the last one is over."""
        self._batches += 1
        if self._batches % BATCHES_BETWEEN or (self._thread and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for table in self._tables:
            try:
                table.compact()
            except Exception:
                _LOG.warning("compaction of %s failed", table.path, exc_info=True)
