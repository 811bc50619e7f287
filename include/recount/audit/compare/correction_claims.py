"""Corrections of any sink: each on Kafka as in Delta, by a known backfill, and readers see the whole log.

An audit that goes on from another one judges the corrections of all rows that it knows of, those that were corrected
before among them, of rows that have been corrected since, and of rows whose corrections were not in order. It reads the
sinks' topics from where no audit has read yet: so what was read of corrections is kept until the row is released, by
the retention of its table. A correction that comes to the topic after that was read before, and is a copy.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from deltalake import DeltaTable
from pyspark.sql import types as T

from recount.audit.carry.delta_frames import frame_at
from recount.audit.compare.claims import AT_MS, ENTRY, EVIDENCE, IDENTITY, IS_NULL, REVISION, ROW, SIDE, entry_type
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
from recount.declare.output import encode_value
from recount.declare.topology import Topology
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import Frame, once, union_of
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
_NEWEST, _ALL = "__newest", "__corrections"
_ABOUT = [BACKFILL_NUMBER, BACKFILL, GENERATION, BATCH]


@dataclass(frozen=True, kw_only=True)
class KnownCorrections:
    """Corrections of a table: ``backfills`` that the audit before had judged, and ``claims`` it kept (``to_keep``)."""

    backfills: int
    claims: Frame | None


@dataclass(frozen=True, kw_only=True)
class Corrections:
    """The corrections of ``backfills`` that were made of batches up to ``cut``; by table those ``known`` before.

    Those of an audit that judged more are left out, on Kafka too. What other backfills have written is not published
    yet: nobody reads it on Kafka, and the next audit judges it.
    """

    database: Database
    tables: Tables
    cut: Order
    backfills: Sequence[str]
    known: Mapping[str, KnownCorrections]
    _claims: dict[Identity, Frame] = field(default_factory=dict)

    def judged(
        self,
        judged: Frame,
        claims: Frame,
        identity: Identity,
        published: Frame | None,
        kept_since_ms: int,
    ) -> Frame:
        """``judged`` rows of a sink with their corrections counted in, and those of which there are corrections only.

        ``claims`` are those of which the rows were made, ``published`` the corrections that are new on Kafka. Takes
        ``COMPLETE_ROWS``, adds ``CORRECTION`` (null: all is well) with ``SAID`` (texts and evidence), ``SEEN`` and
        ``CORRECTED``.
        """
        if self._is_quiet(identity, published):
            return uncorrected(judged, identity)
        rows = self._corrections(identity)
        lined_up = self._lined_up(identity, published, rows, claims)
        if lined_up is None:
            return uncorrected(judged, identity)
        return with_corrections(judged, lined_up, self._written(identity, rows), identity, kept_since_ms)

    def to_keep(self, judged: Frame, identity: Identity) -> Frame | None:
        """Return what the next audit needs: all that Kafka has of rows that are not let go, and what it judges again.

        A row of ``judged`` is let go where all is well and nobody asks any more what readers see of it.
        """
        if identity not in self._claims:
            return self._known(identity).claims
        claims = self._claims[identity].drop(_AGAIN)
        is_wrong = F.col(CORRECTION).is_not_null() | (F.col(COMPLETENESS) == MISSED)
        wrong = judged.where(is_wrong).select(*IDENTITY)
        let_go = judged.where(~is_wrong & (F.col(COMPLETENESS) == KEPT)).select(*IDENTITY)
        again = claims.where(LATER_BATCH).select(*IDENTITY).union(wrong).distinct().with_column(_AGAIN, F.lit(True))
        told = claims.join(again, IDENTITY, "left", nulls_fit=True)
        told = told.with_column(_AGAIN, F.coalesce(_AGAIN, F.lit(False)))
        on_kafka = told.where((F.col(SIDE) == KAFKA) & ~F.col(_AGAIN))
        on_kafka = on_kafka.join(let_go, IDENTITY, "left_anti", nulls_fit=True)
        return told.where(_AGAIN).union(on_kafka).select(*_CLAIMED, _AGAIN)

    def _lined_up(self, identity: Identity, published: Frame | None, rows: Frame | None, claims: Frame) -> Frame | None:
        """All that anybody says of the corrections that are to be judged; None where nobody says anything."""
        known = self._known(identity)
        found = [] if published is None else [published.with_columns({LATER_BATCH: F.lit(False), _AGAIN: F.lit(True)})]
        if known.claims is not None:
            found.append(known.claims.where(F.col(SIDE) == KAFKA))
        if rows is not None:
            is_new = F.coalesce(F.col(WRITTEN_AT).part("number") >= known.backfills, F.lit(True))
            found.append(rows.with_column(_AGAIN, is_new))
        if rows is not None and known.claims is not None and published is not None:
            of_old = _of_old(rows.where(~is_new), published, known.claims)
            found.append(of_old.with_column(_AGAIN, F.lit(False)))
        if not found:
            return None
        told = [one.select(*_CLAIMED, _AGAIN) for one in found]
        lined_up = self._claims[identity] = once(union_of(told))
        again = [claims, lined_up.where(_AGAIN), *([] if known.claims is None else [known.claims.where(_AGAIN)])]
        ids = union_of([one.select(*IDENTITY) for one in again]).distinct()
        return lined_up.join(ids, IDENTITY, "left_semi", nulls_fit=True)

    def _known(self, identity: Identity) -> KnownCorrections:
        return self.known.get(identity.written.table, KnownCorrections(backfills=0, claims=None))

    def _is_quiet(self, identity: Identity, published: Frame | None) -> bool:
        """Whether no corrected row is followed any more, and nothing has come since the audit before."""
        known, path = self._known(identity), self.tables.corrections(identity.written.table)
        if known.claims is None or (published is not None and not published.is_empty()):
            return False
        if DeltaTable.is_deltatable(path):
            numbers = pl.scan_delta(path).select(pl.col(BACKFILL_NUMBER).fill_null(known.backfills).max()).collect()
            newest = numbers.item()
            if newest is not None and newest >= known.backfills:
                return False
        return known.claims.is_empty()

    def _corrections(self, identity: Identity) -> Frame | None:
        """Claims of all corrections that count, with ``LATER_BATCH``; None where there is no table of them."""
        path = self.tables.corrections(identity.written.table)
        if not DeltaTable.is_deltatable(path):
            return None
        rows = frame_at(self.database, path, among={BACKFILL: self.backfills})
        return once(of_backfills(rows, identity, **{LATER_BATCH: is_after(self.cut)}))

    def _written(self, identity: Identity, corrections: Frame | None) -> Frame:
        """All that was written up to the cut, by the stream and by backfills."""
        outputs = frame_at(self.database, self.tables.output(identity.written.table), up_to=self.cut)
        written = of_stream(outputs, identity)
        if corrections is None:
            return written
        return written.union(corrections.where(~F.col(LATER_BATCH)).drop(LATER_BATCH))


def _of_old(rows: Frame, published: Frame, known: Frame) -> Frame:
    """Claims that Kafka has had the corrections ``rows`` before they were ``published`` once more.

    Of those whose claims are ``known`` still there are none: they were read by an audit that has let go of them.
    """
    ids = published.select(*IDENTITY).distinct()
    followed = known.where(F.col(SIDE) == KAFKA).select(*IDENTITY).distinct()
    old = rows.join(ids, IDENTITY, "left_semi", nulls_fit=True)
    old = old.join(followed, IDENTITY, "left_anti", nulls_fit=True)
    return old.with_column(SIDE, F.lit(KAFKA))


def with_corrections(judged: Frame, claims: Frame, written: Frame, identity: Identity, kept_since_ms: int) -> Frame:
    """``judged`` with the ``claims`` about corrections counted in, see ``Corrections.judged``.

    ``written`` are claims about what Delta has of these and other rows, with ``WRITTEN_AT``. The topic keeps its
    records since ``kept_since_ms``.
    """
    per_revision = claims.group_by(*IDENTITY, REVISION).agg(
        F.any_holds(LATER_BATCH).alias(LATER_BATCH),
        *(F.sorted_values(F.when(F.col(SIDE) == place, F.col(ENTRY))).alias(place) for place in PLACES),
        F.part_of_list(F.sorted_list(F.distinct_values(F.col(EVIDENCE))), 1, MAX_EVIDENCE).alias(EVIDENCE),
    )
    all_there = F.sorted_list(F.all_values(F.struct(REVISION, *PLACES, EVIDENCE)))
    mine = per_revision.where(~F.col(LATER_BATCH)).group_by(*IDENTITY)
    found = mine.agg(F.largest(REVISION).alias(_NEWEST), all_there.alias(_ALL))
    seen = seen_rows(written.join(found, IDENTITY, "left_semi", nulls_fit=True), identity)
    seen = seen.select(*IDENTITY, SEEN, CORRECTED_AT, GOES_ON)
    found = found.join(seen, IDENTITY, "left", nulls_fit=True)
    return _with_verdicts(judged.join(found, IDENTITY, "full", nulls_fit=True), identity, kept_since_ms)


def uncorrected(judged: Frame, identity: Identity) -> Frame:
    """``judged`` where nobody corrected anything."""
    nothing, entries = F.lit(None).cast("string"), T.ArrayType(entry_type(identity))
    said = F.struct(*(nothing.alias(place) for place in PLACES), F.lit(None).cast("string[]").alias(EVIDENCE))
    one = T.StructType([T.StructField(REVISION, T.IntegerType()), *(T.StructField(name, entries) for name in PLACES)])
    told = {SEEN: F.lit(None).cast(entries), CORRECTED: F.lit(None).cast(T.ArrayType(one))}
    return judged.with_columns({CORRECTION: nothing, SAID: said, **told})


def kept_for_backfills() -> list[Column]:
    """``COMPLETE_TEXT``: of what is missed, the complete rows in JSON, with times; a row is null where its value is.

    ``GONE_MS``: the time of a deletion of them, that of what is deleted.
    """
    seen, complete = (F.element_at(F.col(name), F.lit(1)).part(AT_MS) for name in (SEEN, COMPLETE_ROWS))
    at_ms = F.coalesce(F.col(f"{EXPECTED}_entry").part(AT_MS), seen, complete)
    return [F.when(F.col(COMPLETENESS) == MISSED, kept_text(COMPLETE_ROWS)).alias(COMPLETE_TEXT), at_ms.alias(GONE_MS)]


def _kept_text(rows: Sequence[Mapping[str, Any]] | None) -> str | None:
    """The entries ``rows`` as ``kept_rows`` reads them: JSON, with all fields."""
    if rows is None:
        return None
    told = ((None if one[ROW] is None else encode_value(one[ROW]).decode(), one[AT_MS]) for one in rows)
    return "[" + ",".join(f'{{"row":{row or "null"},"at_ms":{at_ms}}}' for row, at_ms in told) + "]"


kept_text = F.by_python(_kept_text, T.StringType())


def _with_verdicts(joined: Frame, identity: Identity, kept_since_ms: int) -> Frame:
    goes_on = F.coalesce(GOES_ON, F.lit(False))

    def may_be_gone(one: Column) -> Column:
        return _may_be_gone(one, goes_on | (one.part(REVISION) < F.col(_NEWEST)), identity, kept_since_ms)

    def fault(one: Column) -> Column:
        return _fault(one, may_be_gone(one), identity)

    there = F.filtered(F.col(_ALL), lambda one: (F.size(one.part(KAFKA)) > 0) | ~may_be_gone(one))
    wrong = F.element_at(F.filtered(F.col(_ALL), lambda one: fault(one).is_not_null()), F.lit(1))
    complete = F.coalesce(COMPLETE_ROWS, F.array())
    compacted = F.lit("compact" in identity.written.topic.cleanup_policy)
    verdicts = {f"{place}_verdict": F.coalesce(f"{place}_verdict", F.lit(MATCH)) for place in PLACES}
    is_gone = compacted & (verdicts[f"{KAFKA}_verdict"] == LOST) & F.col(_ALL).is_not_null()
    verdicts[f"{KAFKA}_verdict"] = F.when(is_gone, EXPIRED).otherwise(verdicts[f"{KAFKA}_verdict"])
    corrected = F.when(sees(F.col(SEEN), complete, identity), REPAIRED).otherwise(MISSED)
    told = {
        CORRECTION: fault(wrong),
        SAID: _said(wrong),
        CORRECTED: F.mapped(there, _there),
        COMPLETENESS: F.when(F.col(CORRECTED_AT).is_not_null(), corrected).otherwise(
            F.coalesce(COMPLETENESS, F.lit(KEPT))
        ),
    }
    rows = {} if identity.is_latest else {side: F.coalesce(side, F.array()) for side in (EXPECTED, *PLACES)}
    return joined.with_columns({COMPLETE_ROWS: complete, **rows, **verdicts, **told})


def _may_be_gone(one: Column, superseded: Column, identity: Identity, kept_since_ms: int) -> Column:
    """Whether retention or compaction can have taken the correction ``one`` from the topic."""
    delta, compacted = one.part(DELTA), F.lit("compact" in identity.written.topic.cleanup_policy)
    is_old = F.coalesce(F.element_at(delta, F.lit(1)).part(AT_MS) < F.lit(kept_since_ms), F.lit(False))
    return is_old | (compacted & (superseded | F.each_holds(delta, lambda entry: entry.part(IS_NULL))))


def _fault(one: Column, may_be_gone: Column, identity: Identity) -> Column:
    """Return the fault of the correction ``one``: null for none, and where it has left the topic as it may."""
    kafka, delta = one.part(KAFKA), one.part(DELTA)
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
    return F.when(one.is_not_null(), fault)


def _there(one: Column) -> Column:
    return F.struct(*(one.part(name).alias(name) for name in (REVISION, *PLACES)))


def _said(one: Column) -> Column:
    texts = (_said_text(one.part(place)).alias(place) for place in PLACES)
    return F.struct(*texts, one.part(EVIDENCE).alias(EVIDENCE))


def _text_of(rows: Sequence[Mapping[str, Any]] | None) -> str | None:
    """The entries ``rows`` in JSON, without what is null."""
    if rows is None:
        return None
    told = []
    for one in rows:
        fields = {name: value for name, value in (one[ROW] or {}).items() if value is not None}
        row = f'"row":{encode_value(fields).decode()},' if one[ROW] is not None else ""
        told.append(f'{{"is_null":{str(one[IS_NULL]).lower()},{row}"at_ms":{one[AT_MS]}}}')
    return f"[{','.join(told)}]"


_said_text = F.by_python(_text_of, T.StringType())


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
