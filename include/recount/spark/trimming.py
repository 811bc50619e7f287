"""The stream takes out of its own tables what is older than its retention and what no start needs any more.

Rows of outputs, late and rejected records go once an audit has released them (``core.retention``), and with them the
state of windows that are as old; of a table the rows that a later one has replaced. The state of a graph goes once a
later snapshot has replaced it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from recount.core.nodes import WINDOW_END
from recount.core.own_columns import BATCH, GENERATION, RESULT_TIME, REVISION
from recount.core.retention import AGE_COLUMN, Ageing, Released
from recount.proofs import earlier
from recount.released import audits_version, removable
from recount.spark.columns import STREAM_TIME
from recount.spark.delta_table import AppendOnlyTable
from recount.spark.graph_state import SNAPSHOT

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class AgeingRows:
    """How the rows of an output get old; of a table, whose rows replace each other, those with one ``key``."""

    by: Ageing | None
    key: str


class Trimming:
    """Of the tables of the stream ``name`` below ``root``; ``ageing`` says by table how rows of outputs get old.

    ``closed_after_ms`` is how long after its end a window can still be added to. What audits have released is known
    from certificates below ``reports``; None: none of it goes.
    """

    def __init__(
        self,
        name: str,
        root: str,
        *,
        state: AppendOnlyTable,
        late: AppendOnlyTable,
        rejected: AppendOnlyTable,
        outputs: Mapping[str, AppendOnlyTable],
        ageing: Mapping[str, AgeingRows],
        closed_after_ms: int,
        reports: str | None,
    ) -> None:
        self._name = name
        self._root = root
        self._reports = reports
        self._state = state
        self._late = late
        self._rejected = rejected
        self._outputs = outputs
        self._ageing = ageing
        self._closed_after_ms = closed_after_ms
        self._seen: int | None = None

    def trim(self) -> None:
        """Remove what may go by now."""
        if SNAPSHOT in self._state.schema:
            self._trim_snapshots()
        version = audits_version(self._root, self._name)
        if self._reports is None or version == self._seen:
            return
        found = removable(self._root, self._reports, self._name)
        if found is not None:
            self._trim_released(found)
        self._seen = version

    def _trim_released(self, found: Released) -> None:
        for table, column in self._aged():
            table.delete(f"{column} < {found.before_ms} AND {_up_to(found.cut)}")
        for name, rows in self._ageing.items():
            if rows.by == "table":
                _trim_replaced(self._outputs[name], rows.key, found)
        if WINDOW_END in self._state.schema:
            self._state.delete(f"{WINDOW_END} < {found.before_ms - self._closed_after_ms} AND {_up_to(found.cut)}")
        read = [
            f"(topic = '{topic}' AND partition = {partition} AND offset < {end})"
            for topic, parts in found.offsets.items()
            for partition, end in parts.items()
        ]
        if read:
            self._rejected.delete(" OR ".join(read))
        _LOG.info("removed what the audits of %s released: before %d", self._name, found.before_ms)

    def _aged(self) -> list[tuple[AppendOnlyTable, str]]:
        columns = ((name, AGE_COLUMN.get(rows.by)) for name, rows in self._ageing.items() if rows.by)
        outputs = [(self._outputs[name], column) for name, column in columns if column]
        return [*outputs, (self._late, STREAM_TIME)]

    def _trim_snapshots(self) -> None:
        """A replay of the last batch may need the snapshot before the newest."""
        order = [GENERATION, BATCH]
        snapshots = self._state.read().filter(SNAPSHOT).select(order).unique().sort(order).tail(2).collect()
        if snapshots.height == 2:
            generation, batch = snapshots.row(0)
            self._state.delete(_up_to((generation, batch - 1)))


def _trim_replaced(table: AppendOnlyTable, key: str, found: Released) -> None:
    """Of the rows that are old leave the last one of each key; none where a younger one has replaced it."""
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
