"""Fidelity: every due result is there exactly once per revision, with the value that the log gives it.

All claims about a key and window (the recomputed result, the copies on Kafka, the rows in Delta) are lined up in one
row, and each place is judged from that row. The table ``reconciliation`` keeps what each side says, so that others can
judge it again. Its row is a row of a sink (``verdicts`` has its verdict, this table has none):

| columns | what they are |
| --- | --- |
| ``sink``, ``table``, ``key``, ``window_start``, ``window_end``, ``origin`` | which row; text and milliseconds |
| ``<side>`` of ``expected``, ``kafka``, ``delta`` | the last revision, or each row of the origin: JSON, no doubles |
| ``<side>_doubles`` | the doubles of these, one row after the other, in the order of the declaration |
| ``expected_at_ms``, ``kafka_kept_since_ms`` | event time; since when the topic keeps records (null: ever) |
| ``delta_kept_since_ms`` | since when the table keeps rows, by ``window_end``, else event time (null: ever) |
| ``compaction_takes`` | whether compaction may have taken the row from the topic |
| ``is_held`` | whether a suppression still held the row back: it may have any value or none |
| ``<place>_lowest``, ``_highest``, ``_revisions``, ``_copies`` | of the revisions there, and the most copies of one |
| ``<place>_first`` | the revision that the first one must be; null where revisions may lack |
| ``<place>_stood`` | the revision that stood there when an earlier audit ended: none is written before it |
| ``<place>_lacks``, ``places_differ`` | whether an earlier revision is in the other place only, or other there |
| ``<place>_latest``, ``_latest_doubles``, ``_corrections`` | with corrections, and the most copies of one |

Of any topology but a single aggregation ``<place>_latest`` has the corrections only: the rows of each after its
revision, without those that have left the topic by its rules.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from recount.audit.compare.published import BY_BACKFILL, DELTA, KAFKA, LATER, NO_REVISION, STREAM
from recount.audit.compare.results import COMPLETE, EXPECTED, result_of, same_result
from recount.declare.columns import JUDGED_KEY, ORIGIN, PLACE, RESULT_TIME, REVISION
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.recompute.single_flow import Flow

MATCH, LOST, DUPLICATED, ALTERED, EXTRA, EXPIRED = "match", "lost", "duplicated", "altered", "extra", "expired"
PLACES = (KAFKA, DELTA)
JUDGED_GROUP = [JUDGED_KEY, WINDOW_START, WINDOW_END]
"""What identifies a row that is judged."""
SIDES = (EXPECTED, *PLACES)
_TEXTS, _DOUBLES = pl.List(pl.String()), pl.List(pl.Float64())
_OF_PLACE = {
    "lowest": pl.Int32(),
    "highest": pl.Int32(),
    "revisions": pl.Int64(),
    "copies": pl.Int64(),
    "first": pl.Int32(),
    "stood": pl.Int32(),
    "lacks": pl.Boolean(),
    "latest": _TEXTS,
    "latest_doubles": _DOUBLES,
    "corrections": pl.Int64(),
}
SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("sink", "table", "key"), pl.String()),
    **dict.fromkeys((WINDOW_START, WINDOW_END), pl.Int64()),
    "origin": pl.String(),
    **dict.fromkeys(SIDES, _TEXTS),
    **{f"{side}_doubles": _DOUBLES for side in SIDES},
    **dict.fromkeys(("expected_at_ms", "kafka_kept_since_ms", "delta_kept_since_ms"), pl.Int64()),
    **dict.fromkeys(("compaction_takes", "is_held", "places_differ"), pl.Boolean()),
    **{f"{place}_{name}": kind for place in PLACES for name, kind in _OF_PLACE.items()},
}


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
    """Return what was written to one place, a row per group."""
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
    corrected = revisions.filter(pl.col(ORIGIN) == BY_BACKFILL).group_by(group)
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


def compared_results(judged: pl.DataFrame, flow: Flow, kafka_kept_since_ms: int | None) -> pl.DataFrame:
    """Return what the sides say of the results ``judged``, which has the columns of ``fidelity.line_up``."""
    sink = flow.sink
    told = {EXPECTED: pl.col(EXPECTED), **{place: pl.col(f"{place}_result") for place in PLACES}}
    columns = {
        "sink": pl.lit(sink.topic.name),
        "table": pl.lit(sink.table),
        "key": pl.col(JUDGED_KEY),
        "expected_at_ms": pl.col(EXPECTED).struct.field(RESULT_TIME),
        "kafka_kept_since_ms": pl.lit(kafka_kept_since_ms),
        "compaction_takes": pl.lit(value=False),
        "is_held": pl.lit(value=False),
    }
    for side, result in told.items():
        columns |= {side: _texts(result, flow), f"{side}_doubles": _doubles(result, flow)}
    for place in PLACES:
        is_whole = place != "kafka" or "compact" not in sink.topic.cleanup_policy
        latest = pl.col(f"{place}_latest")
        columns |= {
            f"{place}_first": pl.lit(0 if is_whole else None),
            f"{place}_latest": _texts(latest, flow),
            f"{place}_latest_doubles": _doubles(latest, flow),
        }
    found = {name: columns.get(name, pl.col(name) if name in judged.columns else pl.lit(None)) for name in SCHEMA}
    return judged.select(column.cast(SCHEMA[name]).alias(name) for name, column in found.items())


def _texts(result: pl.Expr, flow: Flow) -> pl.Expr:
    """The result without its doubles, as a list of one text, or of none where there is no result."""
    exact = [*_aggregates(flow, is_double=False), RESULT_TIME]
    text = pl.struct(result.struct.field(name) for name in exact).struct.json_encode()
    return pl.when(result.is_not_null()).then(pl.concat_list(text)).otherwise(pl.lit([], _TEXTS))


def _doubles(result: pl.Expr, flow: Flow) -> pl.Expr:
    names = _aggregates(flow, is_double=True)
    if not names:
        return pl.lit([], _DOUBLES)
    values = pl.concat_list(result.struct.field(name) for name in names)
    return pl.when(result.is_not_null()).then(values).otherwise(pl.lit([], _DOUBLES))


def _aggregates(flow: Flow, *, is_double: bool) -> Sequence[str]:
    return [name for name in flow.aggregate.aggregates if (flow.aggregate.fields[name].kind == "double") == is_double]
