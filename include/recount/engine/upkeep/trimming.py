"""Upkeep of a stream's tables by the stream itself, beside its batches: trimming and compaction.

Rows of outputs, late and rejected records go once an audit has released them (``tables.places``); of a table the rows
that a later one has replaced. State goes once a later snapshot has replaced it.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TypeVar

import polars as pl

from recount.declare.columns import BATCH, GENERATION, RESULT_TIME, REVISION, STREAM_TIME
from recount.engine.commit.delta_table import AppendOnlyTable, LedgerTable
from recount.engine.state.graph_state import SNAPSHOT
from recount.tables.batch_proofs import audits_version, earlier, removable
from recount.tables.places import AGE_COLUMN, Ageing, Released

_LOG = logging.getLogger(__name__)
BATCHES_BETWEEN = 100
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class AgeingRows:
    """How the rows of an output get old; of a table, whose rows replace each other, those with one ``key``."""

    by: Ageing | None
    key: str


@dataclass(kw_only=True, eq=False)
class Trimming:
    """Trims the tables of the stream ``name`` below ``root``; ``ageing`` says by table how rows of outputs get old.

    What audits have released is known from certificates below ``reports``; None: none of it goes.
    """

    name: str
    root: str
    state: AppendOnlyTable
    late: AppendOnlyTable
    rejected: AppendOnlyTable
    outputs: Mapping[str, AppendOnlyTable]
    ageing: Mapping[str, AgeingRows]
    reports: str | None
    _seen: int | None = field(default=None, init=False)

    def trim(self) -> None:
        self._trim_snapshots()
        version = audits_version(self.root, self.name)
        if self.reports is None or version == self._seen:
            return
        found = removable(self.root, self.reports, self.name)
        if found is not None:
            self._trim_released(found)
        self._seen = version

    def _trim_released(self, found: Released) -> None:
        for table, column in self._aged():
            table.delete(f"{column} < {found.before_ms} AND {_up_to(found.cut)}")
        for name, rows in self.ageing.items():
            if rows.by == "table":
                _trim_replaced(self.outputs[name], rows.key, found)
        read = [
            f"(topic = '{topic}' AND partition = {partition} AND offset < {end})"
            for topic, parts in found.offsets.items()
            for partition, end in parts.items()
        ]
        if read:
            self.rejected.delete(" OR ".join(read))
        _LOG.info("removed what the audits of %s released: before %d", self.name, found.before_ms)

    def _aged(self) -> list[tuple[AppendOnlyTable, str]]:
        columns = ((name, AGE_COLUMN.get(rows.by)) for name, rows in self.ageing.items() if rows.by)
        outputs = [(self.outputs[name], column) for name, column in columns if column]
        return [*outputs, (self.late, STREAM_TIME)]

    def _trim_snapshots(self) -> None:
        """A replay of the last batch may need the snapshot before the newest."""
        order = [GENERATION, BATCH]
        snapshots = self.state.read().filter(SNAPSHOT).select(order).unique().sort(order).tail(2).collect()
        if snapshots.height == 2:
            generation, batch = snapshots.row(0)
            self.state.delete(_up_to((generation, batch - 1)))


def _trim_replaced(table: AppendOnlyTable, key: str, found: Released) -> None:
    """Keep the last one of each key of the rows that are old; none where a younger one has replaced it."""
    generation, batch = found.cut
    judged = table.read().filter(earlier((generation, batch + 1)))
    last = judged.group_by(key).agg(pl.col(REVISION).max())
    old = judged.filter(pl.col(RESULT_TIME) < found.before_ms)
    standing = old.join(last, on=[key, REVISION], how="semi", nulls_equal=True)
    number, kept = pl.collect_all([old.select(pl.len()), standing])
    if kept.height < number.item():
        table.replace(f"{RESULT_TIME} < {found.before_ms} AND {_up_to(found.cut)}", kept)


def _up_to(order: tuple[int, int]) -> str:
    generation, batch = order
    return f"({GENERATION} < {generation} OR ({GENERATION} = {generation} AND {BATCH} <= {batch}))"


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
        if self._thread:
            self._thread.join()

    def round(self) -> None:
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


def in_background(name: str, work: Callable[[], Result]) -> Future[Result]:
    """Begin ``work`` in a thread of its own; its result, or what it raised, is in the future."""
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
    try:
        return pool.submit(copy_context().run, work)
    finally:
        pool.shutdown(wait=False)
