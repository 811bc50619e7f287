"""Corrections of any sink: each on Kafka as in Delta, by a known backfill, and readers see the whole log.

An audit that goes on from another one judges the corrections of all rows that it knows of, those that were corrected
before among them, of rows that have been corrected since, and of rows whose corrections were not in order. It reads the
sinks' topics from where no audit has read yet: so what was read of corrections is kept until the row is released, by
the retention of its table. A correction that comes to the topic after that was read before, and is a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import polars as pl
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from recount.audit.carry.delta_frames import delta_frame
from recount.audit.compare.claims import AT_MS, ENTRY, EVIDENCE, IDENTITY, IS_NULL, REVISION, ROW, SIDE, plain_decimals
from recount.audit.compare.fidelity import ALTERED, DUPLICATED, EXPIRED, EXTRA, LOST, MATCH, PLACES
from recount.audit.compare.identity import Identity
from recount.audit.compare.published import DELTA, KAFKA, is_after
from recount.audit.compare.results import EXPECTED
from recount.audit.compare.sink_verdicts import (
    CORRECTED_AT,
    GOES_ON,
    MAX_EVIDENCE,
    SEEN,
    WRITTEN_AT,
    of_backfills,
    of_stream,
    same_bag,
    seen_rows,
    sees,
)
from recount.audit.cut.audited_ledger import Order
from recount.audit.explain.completeness import COMPLETENESS, CORRECTION, KEPT, MISSED, REPAIRED
from recount.certificate.finding import Difference
from recount.declare.columns import BACKFILL, BACKFILL_NUMBER, BATCH, GENERATION
from recount.declare.topology import Topology
from recount.recompute.raw_log import once
from recount.tables.places import Tables

COMPLETE_ROWS = "complete_rows"
"""The rows of an identity that unlimited grace gives: entries, sorted."""
COMPLETE_TEXT, GONE_MS = "complete_rows_text", "gone_ms"
SAID = "correction_said"
CORRECTED = "corrected"
"""What there is of corrections of an identity, in the order of revisions; null where nobody corrected anything."""
LATER_BATCH = "later_batch"
"""Of a claim about a correction: it was made of batches after the cut."""
_AGAIN = "__again"
_CLAIMED = (*IDENTITY, ENTRY, REVISION, EVIDENCE, SIDE, LATER_BATCH)
_ID, _OF, _NEWEST, _ALL = "__id", "__of", "__newest", "__corrections"
_ABOUT = [BACKFILL_NUMBER, BACKFILL, GENERATION, BATCH]


@dataclass(frozen=True, kw_only=True)
class KnownCorrections:
    """Corrections of a table: ``backfills`` that the audit before had judged, and ``claims`` it kept (``to_keep``)."""

    backfills: int
    claims: DataFrame | None


@dataclass(frozen=True, kw_only=True)
class Corrections:
    """The corrections of ``backfills`` that were made of batches up to ``cut``; by table those ``known`` before.

    Those of an audit that judged more are left out, on Kafka too. What other backfills have written is not published
    yet: nobody reads it on Kafka, and the next audit judges it.
    """

    session: SparkSession
    tables: Tables
    cut: Order
    backfills: Sequence[str]
    known: Mapping[str, KnownCorrections]
    _claims: dict[Identity, DataFrame] = field(default_factory=dict)

    def judged(
        self,
        judged: DataFrame,
        claims: DataFrame,
        identity: Identity,
        published: DataFrame | None,
        kept_since_ms: int,
    ) -> DataFrame:
        """``judged`` rows of a sink with their corrections counted in, and those of which there are corrections only.

        ``claims`` are those of which the rows were made, ``published`` the corrections that are new on Kafka. Takes
        ``COMPLETE_ROWS``, adds ``CORRECTION`` (null: all is well) with ``SAID`` (texts and evidence), ``SEEN`` and
        ``CORRECTED``.
        """
        if self._is_quiet(identity, published):
            return uncorrected(judged)
        rows = self._corrections(identity)
        lined_up = self._lined_up(identity, published, rows, claims)
        if lined_up is None:
            return uncorrected(judged)
        return with_corrections(judged, lined_up, self._written(identity, rows), identity, kept_since_ms)

    def to_keep(self, judged: DataFrame, identity: Identity) -> DataFrame | None:
        """Return what the next audit needs: all that Kafka has of rows that are not let go, and what it judges again.

        A row of ``judged`` is let go where all is well and nobody asks any more what readers see of it.
        """
        if identity not in self._claims:
            return self._known(identity).claims
        claims = self._claims[identity].drop(_AGAIN).withColumn(_ID, _id())
        is_wrong = F.col(CORRECTION).isNotNull() | (F.col(COMPLETENESS) == MISSED)
        wrong = judged.where(is_wrong).select(_id().alias(_ID))
        let_go = judged.where(~is_wrong & (F.col(COMPLETENESS) == KEPT)).select(_id().alias(_ID))
        again = claims.where(LATER_BATCH).select(_ID).unionByName(wrong).distinct().withColumn(_AGAIN, F.lit(True))
        told = claims.join(again, _ID, "left").withColumn(_AGAIN, F.coalesce(_AGAIN, F.lit(False)))
        on_kafka = told.where((F.col(SIDE) == KAFKA) & ~F.col(_AGAIN)).join(let_go, _ID, "left_anti")
        return told.where(_AGAIN).unionByName(on_kafka.select(*told.columns)).select(*_CLAIMED, _AGAIN)

    def _lined_up(
        self, identity: Identity, published: DataFrame | None, rows: DataFrame | None, claims: DataFrame
    ) -> DataFrame | None:
        """All that anybody says of the corrections that are to be judged; None where nobody says anything."""
        known = self._known(identity)
        found = [] if published is None else [published.withColumns({LATER_BATCH: F.lit(False), _AGAIN: F.lit(True)})]
        if known.claims is not None:
            found.append(known.claims.where(F.col(SIDE) == KAFKA))
        if rows is not None:
            is_new = F.coalesce(F.col(WRITTEN_AT)["number"] >= known.backfills, F.lit(True))
            found.append(rows.withColumn(_AGAIN, is_new))
        if rows is not None and known.claims is not None and published is not None:
            of_old = _of_old(rows.where(~is_new), published, known.claims)
            found.append(of_old.withColumn(_AGAIN, F.lit(False)))
        if not found:
            return None
        told = [one.select(*_CLAIMED, _AGAIN) for one in found]
        lined_up = self._claims[identity] = once(reduce(DataFrame.unionByName, told))
        again = [claims, lined_up.where(_AGAIN), *([] if known.claims is None else [known.claims.where(_AGAIN)])]
        ids = reduce(DataFrame.union, [one.select(_id().alias(_ID)) for one in again]).distinct()
        return lined_up.withColumn(_ID, _id()).join(ids, _ID, "left_semi").drop(_ID)

    def _known(self, identity: Identity) -> KnownCorrections:
        return self.known.get(identity.written.table, KnownCorrections(backfills=0, claims=None))

    def _is_quiet(self, identity: Identity, published: DataFrame | None) -> bool:
        """Whether no corrected row is followed any more, and nothing has come since the audit before."""
        known, path = self._known(identity), self.tables.corrections(identity.written.table)
        if known.claims is None or (published is not None and not published.isEmpty()):
            return False
        if DeltaTable.is_deltatable(path):
            numbers = pl.scan_delta(path).select(pl.col(BACKFILL_NUMBER).fill_null(known.backfills).max()).collect()
            newest = numbers.item()
            if newest is not None and newest >= known.backfills:
                return False
        return known.claims.isEmpty()

    def _corrections(self, identity: Identity) -> DataFrame | None:
        """Claims of all corrections that count, with ``LATER_BATCH``; None where there is no table of them."""
        path = self.tables.corrections(identity.written.table)
        if not DeltaTable.is_deltatable(path):
            return None
        rows = delta_frame(self.session, path).where(F.col(BACKFILL).isin(list(self.backfills)))
        return once(of_backfills(rows, identity, **{LATER_BATCH: is_after(self.cut)}))

    def _written(self, identity: Identity, corrections: DataFrame | None) -> DataFrame:
        """All that was written up to the cut, by the stream and by backfills."""
        outputs = delta_frame(self.session, self.tables.output(identity.written.table))
        written = of_stream(outputs.where(~is_after(self.cut)), identity)
        if corrections is None:
            return written
        return written.unionByName(corrections.where(~F.col(LATER_BATCH)).drop(LATER_BATCH))


def _of_old(rows: DataFrame, published: DataFrame, known: DataFrame) -> DataFrame:
    """Claims that Kafka has had the corrections ``rows`` before they were ``published`` once more.

    Of those whose claims are ``known`` still there are none: they were read by an audit that has let go of them.
    """
    ids = published.select(_id().alias(_ID))
    followed = known.where(F.col(SIDE) == KAFKA).select(_id().alias(_ID))
    old = rows.withColumn(_ID, _id()).join(ids, _ID, "left_semi").join(followed, _ID, "left_anti")
    return old.select(*rows.columns).withColumn(SIDE, F.lit(KAFKA))


def with_corrections(
    judged: DataFrame, claims: DataFrame, written: DataFrame, identity: Identity, kept_since_ms: int
) -> DataFrame:
    """``judged`` with the ``claims`` about corrections counted in, see ``Corrections.judged``.

    ``written`` are claims about what Delta has of these and other rows, with ``WRITTEN_AT``. The topic keeps its
    records since ``kept_since_ms``.
    """
    per_revision = claims.groupBy(*IDENTITY, REVISION).agg(
        F.bool_or(LATER_BATCH).alias(LATER_BATCH),
        *(F.array_sort(F.collect_list(F.when(F.col(SIDE) == place, F.col(ENTRY)))).alias(place) for place in PLACES),
        F.slice(F.array_sort(F.collect_set(EVIDENCE)), 1, MAX_EVIDENCE).alias(EVIDENCE),
    )
    all_there = F.collect_list(F.struct(REVISION, *PLACES, EVIDENCE))
    mine = per_revision.where(~F.col(LATER_BATCH)).groupBy(*IDENTITY)
    found = mine.agg(F.max(REVISION).alias(_NEWEST), all_there.alias(_ALL))
    found = found.select(F.struct(*IDENTITY).alias(_OF), _id().alias(_ID), _NEWEST, _ALL)
    seen = seen_rows(written.withColumn(_ID, _id()).join(found, _ID, "left_semi"), identity)
    found = found.join(seen.select(_id().alias(_ID), SEEN, CORRECTED_AT, GOES_ON), _ID, "left")
    joined = judged.withColumn(_ID, _id()).join(found, _ID, "full_outer").drop(_ID)
    joined = joined.withColumns({name: F.coalesce(F.col(name), F.col(_OF)[name]) for name in IDENTITY})
    return _with_verdicts(joined, identity, kept_since_ms)


def uncorrected(judged: DataFrame) -> DataFrame:
    """``judged`` where nobody corrected anything."""
    nothing, entries = F.lit(None).cast("string"), judged.schema[COMPLETE_ROWS].dataType
    said = F.struct(*(nothing.alias(place) for place in PLACES), F.lit(None).cast("array<string>").alias(EVIDENCE))
    one = T.StructType([T.StructField(REVISION, T.IntegerType()), *(T.StructField(name, entries) for name in PLACES)])
    told = {SEEN: F.lit(None).cast(entries), CORRECTED: F.lit(None).cast(T.ArrayType(one))}
    return judged.withColumns({CORRECTION: nothing, SAID: said, **told})


def kept_for_backfills(identity: Identity) -> list[Column]:
    """``COMPLETE_TEXT``: of what is missed, the complete rows in JSON, with times; a row is null where its value is.

    ``GONE_MS``: the time of a deletion of them, that of what is deleted.
    """
    seen, complete = (F.try_element_at(F.col(name), F.lit(1))[AT_MS] for name in (SEEN, COMPLETE_ROWS))
    at_ms = F.coalesce(F.col(f"{EXPECTED}_entry")[AT_MS], seen, complete)
    kept = F.transform(COMPLETE_ROWS, lambda entry: F.struct(entry[ROW].alias(ROW), entry[AT_MS].alias(AT_MS)))
    text = F.when(F.col(COMPLETENESS) == MISSED, F.to_json(kept, {"ignoreNullFields": "false"}))
    return [plain_decimals(text, identity.fields).alias(COMPLETE_TEXT), at_ms.alias(GONE_MS)]


def _with_verdicts(joined: DataFrame, identity: Identity, kept_since_ms: int) -> DataFrame:
    goes_on = F.coalesce(GOES_ON, F.lit(False))

    def may_be_gone(one: Column) -> Column:
        return _may_be_gone(one, goes_on | (one[REVISION] < F.col(_NEWEST)), identity, kept_since_ms)

    def fault(one: Column) -> Column:
        return _fault(one, may_be_gone(one), identity)

    there = F.filter(_ALL, lambda one: (F.size(one[KAFKA]) > 0) | ~may_be_gone(one))
    wrong = F.try_element_at(F.filter(_ALL, lambda one: fault(one).isNotNull()), F.lit(1))
    complete = F.coalesce(COMPLETE_ROWS, F.array())
    compacted = F.lit("compact" in identity.written.topic.cleanup_policy)
    verdicts = {f"{place}_verdict": F.coalesce(f"{place}_verdict", F.lit(MATCH)) for place in PLACES}
    is_gone = compacted & (verdicts[f"{KAFKA}_verdict"] == LOST) & F.col(_OF).isNotNull()
    verdicts[f"{KAFKA}_verdict"] = F.when(is_gone, EXPIRED).otherwise(verdicts[f"{KAFKA}_verdict"])
    corrected = F.when(sees(F.col(SEEN), complete, identity), REPAIRED).otherwise(MISSED)
    told = {
        CORRECTION: fault(wrong),
        SAID: _said(wrong, identity),
        CORRECTED: F.transform(F.array_sort(there), _there),
        COMPLETENESS: F.when(F.col(CORRECTED_AT).isNotNull(), corrected).otherwise(
            F.coalesce(COMPLETENESS, F.lit(KEPT))
        ),
    }
    rows = {} if identity.is_latest else {side: F.coalesce(side, F.array()) for side in (EXPECTED, *PLACES)}
    return joined.withColumns({COMPLETE_ROWS: complete, **rows, **verdicts, **told})


def _may_be_gone(one: Column, superseded: Column, identity: Identity, kept_since_ms: int) -> Column:
    """Whether retention or compaction can have taken the correction ``one`` from the topic."""
    delta, compacted = one[DELTA], F.lit("compact" in identity.written.topic.cleanup_policy)
    is_old = F.coalesce(F.try_element_at(delta, F.lit(1))[AT_MS] < F.lit(kept_since_ms), F.lit(False))
    return is_old | (compacted & (superseded | F.forall(delta, lambda entry: entry[IS_NULL])))


def _fault(one: Column, may_be_gone: Column, identity: Identity) -> Column:
    """Return the fault of the correction ``one``: null for none, and where it has left the topic as it may."""
    kafka, delta = one[KAFKA], one[DELTA]
    twice = F.lit(identity.is_latest) & (F.greatest(F.size(kafka), F.size(delta)) > 1)
    fault = (
        F.when(F.size(delta) == 0, EXTRA)
        .when((F.size(kafka) == 0) & may_be_gone, None)
        .when(F.size(kafka) == 0, LOST)
        .when(twice, DUPLICATED)
        .when(same_bag(kafka, delta, identity), None)
        .when(F.size(kafka) > F.size(delta), DUPLICATED)
        .otherwise(ALTERED)
    )
    return F.when(one.isNotNull(), fault)


def _there(one: Column) -> Column:
    return F.struct(*(one[name].alias(name) for name in (REVISION, *PLACES)))


def _said(one: Column, identity: Identity) -> Column:
    texts = {place: plain_decimals(F.to_json(one[place]), identity.fields) for place in PLACES}
    return F.struct(*(text.alias(place) for place, text in texts.items()), one[EVIDENCE].alias(EVIDENCE))


def _id() -> Column:
    """An identity as text, so that nulls are equal."""
    return F.to_json(F.struct(*IDENTITY))


@dataclass(frozen=True, kw_only=True)
class Listed:
    """The rows that the backfill ``name``, the one with ``number``, has in the corrections of ``table``.

    They say what is right after the batch ``order``.
    """

    table: str
    number: int | None
    name: str | None
    order: Order | None
    rows: int


def listed_backfills(tables: Tables, topology: Topology) -> list[Listed]:
    """Return the backfills in all tables of corrections of ``topology``, by table and number."""
    found = []
    for table in sorted(node.table for node in topology.written):
        path = tables.corrections(table)
        if DeltaTable.is_deltatable(path):
            rows = with_batches(pl.scan_delta(path)).group_by(_ABOUT).len().collect().sort(_ABOUT)
            found += [_listed(table, *row) for row in rows.iter_rows()]
    return found


def _listed(
    table: str, number: int | None, name: str | None, generation: int | None, batch: int | None, n: int
) -> Listed:
    order = None if generation is None or batch is None else (generation, batch)
    return Listed(table=table, number=number, name=name, order=order, rows=n)


def with_batches(corrections: pl.LazyFrame) -> pl.LazyFrame:
    """``corrections``; null batches where an earlier release named none, those of a single aggregation."""
    known = corrections.collect_schema().names()
    absent = {GENERATION: pl.Int32, BATCH: pl.Int64}
    return corrections.with_columns(pl.lit(None, kind).alias(n) for n, kind in absent.items() if n not in known)


def published_names(listed: Iterable[Listed], done: int) -> tuple[str, ...]:
    """The names of the backfills before the number ``done``, which Kafka has."""
    names = {one.name for one in listed if one.name is not None and one.number is not None and one.number < done}
    return tuple(sorted(names))


def strange_backfills(
    listed: Iterable[Listed], done: int, audits: Collection[str], batches: Collection[Order]
) -> list[Difference]:
    """A difference for each backfill that follows from none of the ``audits``, or names none of the ``batches``.

    Nobody will publish its rows, or no audit judges them. A backfill that was killed before it published has the
    number ``done`` or, with others before it, one of the next.
    """
    listed = list(listed)
    waiting = sorted({one.number for one in listed if one.number is not None and one.number >= done})
    expected = set(range(done, done + len(waiting)))
    return [
        Difference(
            kind=CORRECTION,
            place=f"table corrections/{one.table}",
            verdict=EXTRA,
            expected="corrections that an audit has found",
            actual=f"{one.rows} rows of backfill {one.name}, number {one.number}, after batch {one.order}",
            cause="no backfill has written these rows: somebody else wrote to the table",
            evidence=(f"backfill {one.name}",),
            origin=f"backfill {one.name}, number {one.number}",
        )
        for one in listed
        if not (_follows(one.name, audits) and one.order in batches and _has_turn(one.number, done, expected))
    ]


def audit_of(backfill: str) -> tuple[str, str]:
    """Return the possible names of the audit of ``backfill``: the second backfill of an audit has a number behind."""
    return backfill, backfill.rpartition(".")[0]


def _follows(name: str | None, audits: Collection[str]) -> bool:
    return name is not None and any(audit in audits for audit in audit_of(name))


def _has_turn(number: int | None, done: int, expected: Collection[int]) -> bool:
    return number is not None and (0 <= number < done or number in expected)
