"""Fidelity: every due result is there exactly once per revision, with the value that the log gives it.

All claims about a key and window (the recomputed result, the copies on Kafka, the rows in Delta) are lined up in one
row, and each place is judged from that row.
"""

from __future__ import annotations

import polars as pl

from recount.audit.copies import BACKFILL, DELTA, KAFKA, LATER, NO_REVISION, STREAM
from recount.audit.results import COMPLETE, EXPECTED, result_of, same_result
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.own_columns import JUDGED_KEY, ORIGIN, PLACE, RESULT_TIME, REVISION
from recount.recompute.flow import Flow

MATCH, LOST, DUPLICATED, ALTERED, EXTRA, EXPIRED = "match", "lost", "duplicated", "altered", "extra", "expired"
PLACES = (KAFKA, DELTA)
JUDGED_GROUP = [JUDGED_KEY, WINDOW_START, WINDOW_END]
"""What identifies a row that is judged."""


def line_up(expected: pl.DataFrame, complete: pl.DataFrame, copies: pl.DataFrame, flow: Flow) -> pl.DataFrame:
    """One row per key and window that anybody knows of.

    Columns: ``JUDGED_GROUP``, ``expected`` and ``complete`` (result structs, null where there is none), and per place
    what the stream wrote there: ``<place>_result`` of the highest revision, ``_copies`` (most of one revision),
    ``_revisions`` (how many), ``_lowest``, ``_highest``, ``_contradictory`` (copies of one revision differ); and with
    corrections counted in, ``<place>_latest`` and ``_corrections`` (most copies of one correction).
    """
    group, renamed = JUDGED_GROUP, {flow.key: JUDGED_KEY}
    claims = [
        rows.rename(renamed).select(*group, result_of(flow).alias(name))
        for name, rows in ((EXPECTED, expected), (COMPLETE, complete))
    ]
    judged = _known_at_the_cut(copies.rename(renamed), group)
    claims += [_summary(judged.filter(pl.col(PLACE) == place), place, flow) for place in PLACES]
    lined_up = pl.concat([claim.select(group) for claim in claims]).unique(maintain_order=True)
    for claim in claims:
        lined_up = lined_up.join(claim, on=group, how="left", nulls_equal=True)
    counts = [f"{place}_{name}" for place in PLACES for name in ("copies", "revisions", "corrections")]
    return lined_up.with_columns(
        pl.col(counts).fill_null(0), *(pl.col(f"{place}_contradictory").fill_null(value=False) for place in PLACES)
    )


def with_verdicts(lined_up: pl.DataFrame, flow: Flow, *, kafka_kept_since_ms: int) -> pl.DataFrame:
    """``lined_up`` with ``kafka_verdict`` and ``delta_verdict``.

    A result whose timestamp is before ``kafka_kept_since_ms`` may have left the topic by retention: ``expired``.
    """
    judged = lined_up.with_columns(
        _verdict(KAFKA, flow, compacted="compact" in flow.sink.topic.cleanup_policy).alias("kafka_alone"),
        _verdict(DELTA, flow, compacted=False).alias("delta_verdict"),
    )
    alone, expected = pl.col("kafka_alone"), pl.col(EXPECTED)
    expired = (alone == LOST) & (expected.struct.field(RESULT_TIME) < kafka_kept_since_ms)
    comparable = (alone == MATCH) & expected.is_not_null() & (pl.col("delta_verdict") == MATCH)
    ahead = pl.col("kafka_highest") - pl.col("delta_highest").fill_null(NO_REVISION)
    verdict = (
        pl.when(expired)
        .then(pl.lit(EXPIRED))
        .when(comparable & (ahead > 0))
        .then(pl.lit(EXTRA))
        .when(comparable & (ahead < 0))
        .then(pl.lit(LOST))
        .otherwise(alone)
    )
    return judged.with_columns(verdict.alias("kafka_verdict")).drop("kafka_alone")


def is_wrong() -> pl.Expr:
    """Whether some place has another verdict than that all is well, or expired."""
    return pl.any_horizontal(~pl.col(f"{place}_verdict").is_in([MATCH, EXPIRED]) for place in PLACES)


def _verdict(place: str, flow: Flow, *, compacted: bool) -> pl.Expr:
    def at(name: str) -> pl.Expr:
        return pl.col(f"{place}_{name}")

    expected = pl.col(EXPECTED)
    missing = pl.lit(value=False) if compacted else at("revisions") != at("highest") + 1
    return (
        pl.when(expected.is_null() & (at("revisions") > 0))
        .then(pl.lit(EXTRA))
        .when(expected.is_null())
        .then(pl.lit(MATCH))
        .when(at("revisions") == 0)
        .then(pl.lit(LOST))
        .when(at("lowest") == NO_REVISION)
        .then(pl.lit(EXTRA))
        .when(at("contradictory") | ~same_result(at("result"), expected, flow))
        .then(pl.lit(ALTERED))
        .when(at("copies") > 1)
        .then(pl.lit(DUPLICATED))
        .when(missing)
        .then(pl.lit(LOST))
        .otherwise(pl.lit(MATCH))
    )


def _known_at_the_cut(copies: pl.DataFrame, group: list[str]) -> pl.DataFrame:
    """``copies`` without the revisions that only a batch after the cut wrote to Delta."""
    revision = [*group, ORIGIN, REVISION]
    written = copies.filter(pl.col(PLACE) == DELTA)
    later = copies.filter(pl.col(PLACE) == LATER).join(written, on=revision, how="anti", nulls_equal=True)
    return copies.join(later, on=revision, how="anti", nulls_equal=True)


def _summary(copies: pl.DataFrame, place: str, flow: Flow) -> pl.DataFrame:
    """What was written to one place, a row per group."""
    group, fields = JUDGED_GROUP, [*flow.aggregate.aggregates, RESULT_TIME]
    # in order of their values: all copies of a revision are equal when the first and the last are
    revisions = (
        copies.sort(fields)
        .group_by(*group, ORIGIN, REVISION, maintain_order=True)
        .agg(
            pl.len().alias("copies"),
            pl.any_horizontal(pl.col(name).first().ne_missing(pl.col(name).last()) for name in fields).alias("differ"),
            result_of(flow).last().alias("result"),
        )
        .sort(REVISION)
    )
    streamed = revisions.filter(pl.col(ORIGIN) == STREAM).group_by(group)
    corrected = revisions.filter(pl.col(ORIGIN) == BACKFILL).group_by(group)
    summaries = [
        streamed.agg(
            pl.col("copies").max().alias(f"{place}_copies"),
            pl.len().alias(f"{place}_revisions"),
            pl.col(REVISION).first().alias(f"{place}_lowest"),
            pl.col(REVISION).last().alias(f"{place}_highest"),
            pl.col("differ").any().alias(f"{place}_contradictory"),
            pl.col("result").last().alias(f"{place}_result"),
        ),
        corrected.agg(pl.col("copies").max().alias(f"{place}_corrections")),
    ]
    summary = revisions.group_by(group).agg(pl.col("result").last().alias(f"{place}_latest"))
    for one in summaries:
        summary = summary.join(one, on=group, how="left", nulls_equal=True)
    return summary
