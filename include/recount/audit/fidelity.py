"""Fidelity: every due result is there exactly once per revision, with the value that the log gives it.

All claims about a key and window (the recomputed result, the copies on Kafka, the rows in Delta) are lined up in one
row by one shuffle, and each place is judged from that row.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from recount.audit.copies import BACKFILL, DELTA, EVIDENCE, KAFKA, LATER, NO_REVISION, ORIGIN, PLACE, REVISION, STREAM
from recount.core.schema import FieldType
from recount.recompute.aggregating import TIMESTAMP, group_of
from recount.recompute.columns import named
from recount.recompute.flow import Flow

RESULT, EXPECTED, COMPLETE = "result", "expected", "complete"
MATCH, LOST, DUPLICATED, ALTERED, EXTRA, EXPIRED = "match", "lost", "duplicated", "altered", "extra", "expired"
PLACES = (KAFKA, DELTA)
RELATIVE_TOLERANCE = 1e-9
_MAX_EVIDENCE = 20


def line_up(expected: DataFrame, complete: DataFrame, copies: DataFrame, flow: Flow) -> DataFrame:
    """One row per key and window that anybody knows of.

    Columns: the group, ``expected`` and ``complete`` (result structs, null where there is none), and per place what
    the stream wrote there: ``<place>_result`` of the highest revision, ``_copies`` (most of one revision),
    ``_revisions`` (how many), ``_lowest``, ``_highest``, ``_contradictory`` (copies of one revision differ),
    ``_evidence``; and with corrections counted in, ``<place>_latest``, ``_latest_revision`` and ``_corrections`` (most
    copies of one correction).
    """
    group = [named(name) for name in group_of(flow)]
    per_revision = copies.withColumn(RESULT, _struct(flow)).groupBy(*group, ORIGIN, REVISION)
    counted = per_revision.agg(*(column for place in (*PLACES, LATER) for column in _copies_at(place)))
    later = (F.col("later_copies") > 0) & (F.col("delta_copies") == 0)
    found = counted.where(~later)
    claims = found.unionByName(_claim(expected, EXPECTED, flow), allowMissingColumns=True)
    claims = claims.unionByName(_claim(complete, COMPLETE, flow), allowMissingColumns=True)
    return claims.groupBy(*group).agg(
        F.max(EXPECTED).alias(EXPECTED),
        F.max(COMPLETE).alias(COMPLETE),
        *(column for place in PLACES for column in _summary_of(place)),
    )


def with_verdicts(lined_up: DataFrame, flow: Flow, *, kafka_kept_since_ms: int) -> DataFrame:
    """``lined_up`` with ``kafka_verdict`` and ``delta_verdict``.

    A result whose timestamp is before ``kafka_kept_since_ms`` may have left the topic by retention: ``expired``.
    """
    compacted = "compact" in flow.sink.topic.cleanup_policy
    kafka = _verdict(KAFKA, flow, compacted)
    expired = (kafka == LOST) & (F.col(f"{EXPECTED}.{TIMESTAMP}") < kafka_kept_since_ms)
    other = F.coalesce(F.col("delta_highest"), F.lit(NO_REVISION))
    beyond = (kafka == MATCH) & F.col(EXPECTED).isNotNull()
    return lined_up.withColumn("delta_verdict", _verdict(DELTA, flow, False)).withColumn(
        "kafka_verdict",
        F.when(expired, EXPIRED)
        .when(beyond & (F.col("kafka_highest") > other) & (F.col("delta_verdict") == MATCH), EXTRA)
        .when(beyond & (F.col("kafka_highest") < other) & (F.col("delta_verdict") == MATCH), LOST)
        .otherwise(kafka),
    )


def same_result(one: Column, other: Column, flow: Flow) -> Column:
    """Whether two result structs are equal: exactly, but doubles within a relative 1e-9, for they may be added up in
    any order. Null equals null only."""
    fields = {name: flow.aggregate.fields[name] for name in flow.aggregate.aggregates}
    parts = [same_value(one[name], other[name], kind) for name, kind in fields.items()]
    parts.append(one[TIMESTAMP].eqNullSafe(other[TIMESTAMP]))
    both = one.isNotNull() & other.isNotNull() & reduce(lambda a, b: a & b, parts)
    return both | (one.isNull() & other.isNull())


def _verdict(place: str, flow: Flow, compacted: bool) -> Column:
    def at(name: str) -> Column:
        return F.col(f"{place}_{name}")

    missing = F.lit(False) if compacted else at("revisions") != at("highest") + 1
    verdict = F.when(F.col(EXPECTED).isNull() & (at("revisions") > 0), EXTRA)
    verdict = verdict.when(F.col(EXPECTED).isNull(), MATCH).when(at("revisions") == 0, LOST)
    verdict = verdict.when(at("lowest") == NO_REVISION, EXTRA).when(at("contradictory"), ALTERED)
    verdict = verdict.when(~same_result(at(RESULT), F.col(EXPECTED), flow), ALTERED)
    return verdict.when(at("copies") > 1, DUPLICATED).when(missing, LOST).otherwise(MATCH)


def _copies_at(place: str) -> list[Column]:
    here = F.col(PLACE) == place
    return [
        F.count_if(here).alias(f"{place}_copies"),
        F.max(F.when(here, F.col(RESULT))).alias(f"{place}_result"),
        (F.max(F.when(here, F.col(RESULT))) != F.min(F.when(here, F.col(RESULT)))).alias(f"{place}_contradictory"),
        F.collect_list(F.when(here, F.col(EVIDENCE))).alias(f"{place}_evidence"),
    ]


def _summary_of(place: str) -> list[Column]:
    copied = F.col(f"{place}_copies") > 0
    streamed = copied & (F.col(ORIGIN) == STREAM)
    corrected = copied & (F.col(ORIGIN) == BACKFILL)
    revision, result = F.col(REVISION), F.col(f"{place}_result")
    evidence = F.flatten(F.collect_list(F.when(streamed, F.col(f"{place}_evidence"))))
    return [
        F.coalesce(F.max(F.when(streamed, F.col(f"{place}_copies"))), F.lit(0)).alias(f"{place}_copies"),
        F.count_if(streamed).alias(f"{place}_revisions"),
        F.min(F.when(streamed, revision)).alias(f"{place}_lowest"),
        F.max(F.when(streamed, revision)).alias(f"{place}_highest"),
        F.coalesce(F.bool_or(streamed & F.col(f"{place}_contradictory")), F.lit(False)).alias(f"{place}_contradictory"),
        F.max_by(result, F.when(streamed, revision)).alias(f"{place}_result"),
        F.slice(F.array_sort(evidence), 1, _MAX_EVIDENCE).alias(f"{place}_evidence"),
        F.max_by(result, F.when(streamed | corrected, revision)).alias(f"{place}_latest"),
        F.max(F.when(copied, revision)).alias(f"{place}_latest_revision"),
        F.coalesce(F.max(F.when(corrected, F.col(f"{place}_copies"))), F.lit(0)).alias(f"{place}_corrections"),
    ]


def _claim(results: DataFrame, claim: str, flow: Flow) -> DataFrame:
    return results.select(*map(named, group_of(flow)), _struct(flow).alias(claim))


def _struct(flow: Flow) -> Column:
    return F.struct(*(named(name) for name in [*flow.aggregate.aggregates, TIMESTAMP]))


def same_value(one: Column, other: Column, kind: FieldType) -> Column:
    """Whether two values of one type are equal, doubles within a relative 1e-9; null equals null only."""
    if kind.kind != "double":
        return one.eqNullSafe(other)
    near = F.abs(one - other) <= RELATIVE_TOLERANCE * F.greatest(F.abs(one), F.abs(other))
    return F.coalesce(near, one.isNull() & other.isNull())
