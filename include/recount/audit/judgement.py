"""The outputs of the audited stretch, lined up with what the log gives, and judged."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.audit.completeness import with_completeness
from recount.audit.copies import copies_in_corrections, copies_in_output, copies_on_kafka, is_after
from recount.audit.fidelity import line_up, with_verdicts
from recount.audit.ledger import Order
from recount.audit.store import PARTIALS, PUBLISHED, AuditStore, Run, Seed
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.tables import Tables
from recount.core.topics import UNLIMITED_RETENTION_MS
from recount.recompute.aggregating import group_of, results
from recount.recompute.columns import named
from recount.recompute.flow import Flow
from recount.recompute.judging import IS_LATE
from recount.recompute.log import Ranges
from recount.recompute.recomputation import Recomputation


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """What is judged: the results that the batches after ``seed`` up to ``cut`` made due, changed, or wrote.

    ``published`` are the offsets of the sink's topic that no audit has seen yet; ``frontier_ms`` is that of the cut.
    """

    audit: str
    seed: Seed
    cut: Order
    frontier_ms: int | None
    published: Ranges


class Judge:
    """Judges the sink of one flow."""

    def __init__(
        self, session: SparkSession, bootstrap_servers: str, tables: Tables, store: AuditStore, flow: Flow
    ) -> None:
        self._session = session
        self._bootstrap_servers = bootstrap_servers
        self._tables = tables
        self._store = store
        self._flow = flow

    def judged(self, stretch: Stretch, recomputed: Recomputation) -> tuple[DataFrame, DataFrame]:
        """One row per key and window of the stretch with its verdicts; and all partials behind those windows.

        What was recomputed and what was read from Kafka is stored first, for the audits to come.
        """
        flow = self._flow
        seen = copies_on_kafka(self._session, self._bootstrap_servers, flow, stretch.published)
        with ThreadPoolExecutor() as pool:
            stored = [
                pool.submit(self._store.put, PARTIALS, stretch.audit, recomputed.partials),
                pool.submit(self._store.put, PUBLISHED, stretch.audit, seen),
            ]
        for done in stored:
            done.result()
        # an audit from the beginning touches everything
        touched = self._touched(stretch, stretch.seed.run) if stretch.seed.run else None
        oldest_ms = None if touched is None else touched.agg(F.min(WINDOW_START)).first()[0]  # type: ignore[index]
        parts = self._all(PARTIALS, stretch, oldest_ms)
        copies = self._all(PUBLISHED, stretch, oldest_ms).drop("audit")
        for rows in (
            copies_in_output(self._session, self._tables, flow, stretch.cut),
            copies_in_corrections(self._session, self._tables, flow),
        ):
            copies = copies.unionByName(rows.where(_since(oldest_ms)))
        due = self._due(stretch.frontier_ms)
        expected, complete = results(parts.where(~F.col(IS_LATE)), flow), results(parts, flow)
        lined_up = line_up(expected.where(due), complete.where(due), copies, flow)
        mine = lined_up if touched is None else _same_group(lined_up, touched, flow)
        judged = with_verdicts(mine, flow, kafka_kept_since_ms=self._kept_since_ms())
        return with_completeness(judged, flow), parts

    def _touched(self, stretch: Stretch, seed: Run) -> DataFrame:
        """The keys and windows whose verdict may be another one than at ``seed``."""
        group = [named(name) for name in group_of(self._flow)]
        parts = self._all(PARTIALS, stretch, None)
        fresh = F.col("audit") == stretch.audit
        newly_due = self._due(stretch.frontier_ms) & ~self._due(seed.frontier_ms)
        outputs = self._session.read.format("delta").load(self._tables.output(self._flow.sink.table))
        written = outputs.where(is_after(seed.order) & ~is_after(stretch.cut))
        frames = [parts.where(fresh | newly_due), self._all(PUBLISHED, stretch, None).where(fresh), written]
        return reduce(DataFrame.unionByName, [frame.select(*group) for frame in frames]).distinct()

    def _all(self, name: str, stretch: Stretch, oldest_ms: int | None) -> DataFrame:
        rows = self._store.read(name, [*stretch.seed.lineage, stretch.audit])
        return rows.where(_since(oldest_ms))

    def _due(self, frontier_ms: int | None) -> Column:
        """Whether a window's result must have been written when the frontier was ``frontier_ms``."""
        if self._flow.aggregate.emission.kind != "final":
            return F.lit(True)
        if frontier_ms is None:
            return F.lit(False)
        return F.col(WINDOW_END) <= frontier_ms - self._flow.windows.grace_ms

    def _kept_since_ms(self) -> int:
        retention_ms = self._flow.sink.topic.retention_ms
        return 0 if retention_ms == UNLIMITED_RETENTION_MS else time.time_ns() // 1_000_000 - retention_ms


def _since(oldest_ms: int | None) -> Column:
    """Rows of windows that start at ``oldest_ms`` or later, and rows that name no window."""
    return F.lit(True) if oldest_ms is None else (F.col(WINDOW_START) >= oldest_ms) | F.col(WINDOW_START).isNull()


def _same_group(rows: DataFrame, wanted: DataFrame, flow: Flow) -> DataFrame:
    """The rows whose key and window are among ``wanted``, null equal to null."""
    other = wanted.select(*(named(name).alias(f"__{place}") for place, name in enumerate(group_of(flow))))
    equal = [named(name).eqNullSafe(F.col(f"__{place}")) for place, name in enumerate(group_of(flow))]
    return rows.join(other, reduce(lambda one, two: one & two, equal), "left_semi")
