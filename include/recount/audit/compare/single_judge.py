"""Outputs of the audited range, lined up with what the log gives and judged, a part of the results at a time.

All that is compared is in Delta tables and is read without Spark, which would plan for longer than it judges. A part
holds about ``RESULTS_AT_ONCE`` rows of all tables, so that memory does not grow with the number of results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import polars as pl
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from recount.audit.carry.removed import kept_windows
from recount.audit.carry.store import PARTIALS, PUBLISHED, RECONCILIATION, VERDICTS, AuditStore, Run, Seed
from recount.audit.compare.fidelity import JUDGED_GROUP, PLACES, compared_results, is_wrong, line_up, with_verdicts
from recount.audit.compare.published import STREAM, as_copies, copies_in_corrections, copies_in_output, written_after
from recount.audit.compare.results import KEY_TEXT, WindowTotal, in_order, merged, series_of, totals_by_window
from recount.audit.cut.audited_ledger import Order
from recount.audit.explain.completeness import COMPLETENESS, correction_differences, grace_misses, with_completeness
from recount.certificate.finding import Difference, GraceMiss
from recount.declare.columns import AUDIT, EVIDENCE, IS_LATE, JUDGED_KEY, ORIGIN, PLACE
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.topics import UNLIMITED_RETENTION_MS
from recount.recompute.single_flow import Flow
from recount.runtime.times import clock_ms
from recount.tables.places import Released, Tables

RESULTS_AT_ONCE = 1_000_000
MAX_WRONG = 10_000
"""So many wrong rows are followed one by one; all are counted."""
_MAX_EVIDENCE = 20
Row = tuple[str | None, int | None, int | None]
"""A key as text, and the bounds of a window."""
_COLUMNS = (*(f"{place}_verdict" for place in PLACES), COMPLETENESS)


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Scope of the judgement: the results that the batches after ``seed`` up to ``cut`` made due, changed, or wrote.

    ``is_whole``: of those before ``seed`` too, for somebody wrote to the tables that an earlier audit has judged.
    ``frontier_ms`` is that of the cut. What was recomputed and what was read from Kafka is in the audit's tables.
    What is ``released`` is judged no more: the stream may have removed it.
    ``again`` are older rows, (key as text, window start, window end), whose findings are not closed: judged again too.
    """

    audit: str
    seed: Seed
    cut: Order
    frontier_ms: int | None
    again: tuple[Row, ...] = ()
    is_whole: bool = False
    released: Released | None = None


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Outcome for the results: all ``counts`` by verdict, the first wrong rows, and what else differs.

    A wrong row has the columns of ``fidelity.line_up``, the verdicts, ``<place>_evidence`` and ``KEY_TEXT``;
    ``unlisted`` is how many wrong rows there are beyond ``MAX_WRONG``.
    """

    counts: Mapping[str, int]
    wrong: Sequence[Mapping[str, Any]]
    unlisted: int
    misses: Sequence[GraceMiss]
    corrections: Sequence[Difference]
    series: Sequence[WindowTotal]


@dataclass(frozen=True, kw_only=True)
class _Claims:
    """Claims about some keys and windows; ``touched`` None: all of them are judged."""

    partials: pl.LazyFrame
    copies: pl.LazyFrame
    touched: pl.LazyFrame | None


class Judge:
    """Judges the sink of one flow. ``backfills`` name those whose corrections count; None: all."""

    def __init__(self, tables: Tables, store: AuditStore, flow: Flow, backfills: Sequence[str] | None = None) -> None:
        self._backfills = backfills
        self._tables = tables
        self._store = store
        self._flow = flow
        self._group = flow.group

    def judge(self, stretch: Stretch) -> Judgement:
        """Judge the range and keep the verdicts, one row per key and window."""
        counts: Counter[str] = Counter()
        wrong: list[Mapping[str, Any]] = []
        wrong_rows = 0
        misses: list[GraceMiss] = []
        corrections: list[Difference] = []
        totals: list[Mapping[str, Any]] = []
        late = pl.scan_delta(self._tables.late(self._flow.topology.name)).filter(~written_after(stretch.cut))
        for number, claims in enumerate(self._parts(stretch)):
            partials, copies = pl.collect_all([claims.partials, claims.copies])
            judged = self._judged(stretch, partials, copies, claims.touched)
            self._store.put_rows(VERDICTS, stretch.audit, self._verdicts(judged), part=number)
            beside = compared_results(judged, self._flow, self._kept_since_ms() or None)
            self._store.put_rows(RECONCILIATION, stretch.audit, beside, part=number)
            counts += verdict_counts(judged)
            wrong_rows += judged.filter(is_wrong()).height
            wrong = in_order([*wrong, *self._wrong(judged, copies)], WINDOW_START, JUDGED_KEY)[:MAX_WRONG]
            misses += grace_misses(judged, partials, late, self._flow)
            corrections += correction_differences(judged, self._flow)
            totals += totals_by_window(judged, self._flow)
        return Judgement(
            counts=dict(counts),
            wrong=wrong,
            unlisted=wrong_rows - len(wrong),
            misses=sorted(misses, key=lambda miss: (miss.window_start or 0, miss.key or "")),
            corrections=corrections,
            series=series_of(totals),
        )

    def _judged(
        self, stretch: Stretch, partials: pl.DataFrame, copies: pl.DataFrame, touched: pl.LazyFrame | None
    ) -> pl.DataFrame:
        due = self._due(stretch.frontier_ms)
        expected, complete = merged(partials.filter(~pl.col(IS_LATE)), self._flow), merged(partials, self._flow)
        lined_up = line_up(expected.filter(due), complete.filter(due), copies, self._flow)
        if touched is not None:
            lined_up = lined_up.join(
                touched.collect().rename({self._flow.key: JUDGED_KEY}), on=JUDGED_GROUP, how="semi", nulls_equal=True
            )
        judged = with_verdicts(lined_up, self._flow, kafka_kept_since_ms=self._kept_since_ms())
        return with_completeness(judged, self._flow)

    def _parts(self, stretch: Stretch) -> Iterator[_Claims]:
        """The claims about all results of the range, those about one key and window in one part."""
        partials = self._all(PARTIALS, stretch)
        written = [
            as_copies(self._all(PUBLISHED, stretch), self._flow),
            copies_in_output(self._tables, self._flow, stretch.cut),
            copies_in_corrections(self._tables, self._flow, self._backfills),
        ]
        kept = kept_windows(stretch.released)
        partials, copies = partials.filter(kept), pl.concat(written).filter(kept)
        touched = None
        if stretch.seed.run and not stretch.is_whole:  # an audit from the beginning touches everything
            touched = self._touched(stretch, stretch.seed.run)
            oldest_ms = touched.select(pl.col(WINDOW_START).min()).collect().item()
            near = _since(oldest_ms) | _in_windows(stretch.again)
            partials, copies = partials.filter(near), copies.filter(near)
            touched = pl.concat([touched, self._again(stretch, partials, copies)]).unique()
        sizes = pl.collect_all([rows.select(pl.len()) for rows in (partials, copies)])
        number = max(1, ceil(sum(size.item() for size in sizes) / RESULTS_AT_ONCE))
        for part in range(number):
            here = self._is_in(part, number)
            yield _Claims(
                partials=partials.filter(here),
                copies=copies.filter(here),
                touched=None if touched is None else touched.filter(here),
            )

    def _is_in(self, part: int, of: int) -> pl.Expr:
        if of == 1:
            return pl.lit(value=True)
        place = pl.col(self._flow.key).cast(pl.String).hash() ^ pl.col(WINDOW_START).hash()
        return place % of == part

    def _touched(self, stretch: Stretch, seed: Run) -> pl.LazyFrame:
        """The keys and windows whose verdict may be another one than at ``seed``."""
        fresh = pl.col(AUDIT) == stretch.audit
        newly_due = self._due(stretch.frontier_ms) & ~self._due(seed.frontier_ms)
        written = pl.scan_delta(self._tables.output(self._flow.sink.table)).filter(
            written_after(seed.order) & ~written_after(stretch.cut)
        )
        rows = [
            self._all(PARTIALS, stretch).filter(fresh | newly_due),
            self._all(PUBLISHED, stretch).filter(fresh),
            written,
        ]
        return pl.concat([one.select(self._group) for one in rows]).filter(kept_windows(stretch.released)).unique()

    def _again(self, stretch: Stretch, *claims: pl.LazyFrame) -> pl.LazyFrame:
        """The keys and windows of ``stretch.again`` that ``claims`` know of."""
        place = [KEY_TEXT, WINDOW_START, WINDOW_END]
        schema = dict(zip(place, (pl.String, pl.Int64, pl.Int64), strict=True))
        wanted = pl.LazyFrame(stretch.again, schema, orient="row")
        groups = pl.concat([one.filter(_in_windows(stretch.again)).select(self._group) for one in claims])
        told = groups.with_columns(pl.col(self._flow.key).cast(pl.String).alias(KEY_TEXT))
        return told.join(wanted, on=place, how="semi", nulls_equal=True).select(self._group)

    def _all(self, name: str, stretch: Stretch) -> pl.LazyFrame:
        return self._store.rows(name, [*stretch.seed.lineage, stretch.audit])

    def _due(self, frontier_ms: int | None) -> pl.Expr:
        """Whether a window's result must have been written when the frontier was ``frontier_ms``."""
        if self._flow.aggregate.emission.kind != "final":
            return pl.lit(value=True)
        if frontier_ms is None:
            return pl.lit(value=False)
        return pl.col(WINDOW_END) <= frontier_ms - self._flow.windows.grace_ms

    def _kept_since_ms(self) -> int:
        retention_ms = self._flow.sink.topic.retention_ms
        return 0 if retention_ms == UNLIMITED_RETENTION_MS else clock_ms() - retention_ms

    def _verdicts(self, judged: pl.DataFrame) -> pl.DataFrame:
        return judged.select(
            pl.lit(self._flow.sink.topic.name).alias("sink"),
            pl.col(JUDGED_KEY).cast(pl.String).alias("key"),
            WINDOW_START,
            WINDOW_END,
            pl.lit(None, pl.String).alias("origin"),
            *(f"{place}_verdict" for place in PLACES),
            COMPLETENESS,
        )

    def _wrong(self, judged: pl.DataFrame, copies: pl.DataFrame) -> Sequence[Mapping[str, Any]]:
        """The first wrong rows, each with where its copies are."""
        wrong = judged.filter(is_wrong()).sort(WINDOW_START, JUDGED_KEY).head(MAX_WRONG)
        for place in PLACES:
            mine = copies.rename({self._flow.key: JUDGED_KEY}).filter(
                (pl.col(PLACE) == place) & (pl.col(ORIGIN) == STREAM)
            )
            found = mine.join(wrong, on=JUDGED_GROUP, how="semi", nulls_equal=True).group_by(JUDGED_GROUP)
            evidence = found.agg(pl.col(EVIDENCE).sort().head(_MAX_EVIDENCE).alias(f"{place}_evidence"))
            wrong = wrong.join(evidence, on=JUDGED_GROUP, how="left", nulls_equal=True)
        return wrong.with_columns(pl.col(JUDGED_KEY).cast(pl.String).alias(KEY_TEXT)).to_dicts()


def _since(oldest_ms: int | None) -> pl.Expr:
    """Rows of windows that start at ``oldest_ms`` or later (None: there are none), and rows that name no window."""
    start = pl.col(WINDOW_START)
    return start.is_null() if oldest_ms is None else (start >= oldest_ms) | start.is_null()


def _in_windows(rows: Sequence[Row]) -> pl.Expr:
    """Rows of the windows of ``rows``; (null, null) is a window as well."""
    starts = [start for _, start, _ in rows if start is not None]
    return pl.col(WINDOW_START).is_in(starts) | pl.col(WINDOW_START).is_null()


def verdict_counts(judged: pl.DataFrame) -> Counter[str]:
    """The rows of ``judged`` by verdict: ``kafka match``, ``delta lost``, ``completeness missed``."""
    return _by_verdict(judged.group_by(_COLUMNS).agg(pl.len().alias("n")).to_dicts())


def verdict_counts_by_spark(judged: DataFrame) -> dict[str, int]:
    """The same of Spark's rows."""
    rows = judged.groupBy(*_COLUMNS).agg(F.count("*").alias("n")).collect()
    return dict(_by_verdict(row.asDict() for row in rows))


def _by_verdict(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row in rows:
        for column in _COLUMNS:
            counts[f"{column.removesuffix('_verdict')} {row[column]}"] += row["n"]
    return counts
