"""Verdicts on the rows of any sink, found against expected, and the rows that readers see after backfills.

Where every row counts, the rows of one origin are compared as bags. Where rows replace each other, the last revision of
each key, and of each of its windows, is compared.

A correction takes the place of all rows of its identity that batches up to its own had written, and of all corrections
before it. What the stream writes in a later batch takes the place of the correction. So a reader orders by batch, and
within a batch puts the stream's rows first and corrections, by the number of their backfill, behind them. On Kafka the
records are in that order.
"""

from recount.audit.compare.claims import (
    AT_MS,
    ENTRY,
    EVIDENCE,
    IDENTITY,
    IS_NULL,
    REVISION,
    SIDE,
    STANDING,
    of_rows,
    same_entry,
    same_entry_or_none,
)
from recount.audit.compare.fidelity import ALTERED, DUPLICATED, EXTRA, LOST, MATCH, PLACES
from recount.audit.compare.identity import Identity
from recount.audit.compare.published import DELTA, KAFKA, LATER, NO_REVISION
from recount.audit.compare.results import COMPLETE, EXPECTED
from recount.audit.explain.completeness import COMPLETENESS, KEPT, MISSED
from recount.declare.columns import BACKFILL, BACKFILL_NUMBER, BATCH, GENERATION
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.operators.frontiers import NONE_DUE

MAX_EVIDENCE = 20
_DIFFER = "places_differ"
IS_HELD = "is_held"
_SIDES = (EXPECTED, COMPLETE, *PLACES, LATER)
SEEN, HIGHEST, CORRECTED_AT, GOES_ON = "seen", "highest", "corrected_at", "goes_on"
WRITTEN_AT = "written_at"
"""When a row was written: the batch, and behind all rows of the batch the backfill."""
OF_STREAM = -1
_MAX_INT = 2**31 - 1


def judged_latest(
    claims: Frame,
    identity: Identity,
    held_after_ms: int,
    kept_since_ms: int,
    in_delta_since_ms: int,
    *,
    is_whole_since: bool,
) -> Frame:
    """One row for each key and window of ``claims``: verdicts, and entries ``<side>_entry`` with ``<side>_evidence``.

    A deletion that is expected is no row. A row that was still held back by a suppression, its last change after
    ``held_after_ms``, may have any value or none: of it only copies and gaps are judged. A record from before
    ``kept_since_ms`` may have left the topic by retention, a replaced one from before ``in_delta_since_ms`` the table:
    but not after the revision that stood before, where it ``is_whole_since``.
    """
    lined_up = _lined_up(claims, identity, kept_since_ms, in_delta_since_ms)
    held = F.coalesce(F.col(f"{EXPECTED}_raw").part(AT_MS) > F.lit(held_after_ms), F.lit(False))
    for side in (EXPECTED, COMPLETE):
        raw = F.col(f"{side}_raw")
        lined_up = lined_up.with_column(f"{side}_entry", F.when(~raw.part(IS_NULL), raw))
    compacted = "compact" in identity.written.topic.cleanup_policy
    whole_since = F.lit(is_whole_since) & F.col(f"{DELTA}_stood").is_not_null()
    whole = {
        DELTA: whole_since if in_delta_since_ms != NONE_DUE else F.lit(True),
        KAFKA: F.lit(not compacted and kept_since_ms == NONE_DUE),
    }
    is_dense = {place: F.lit(identity.is_dense) & whole[place] for place in PLACES}
    verdicts = {f"{place}_verdict": _verdict_of_latest(place, identity, held, is_dense[place]) for place in PLACES}
    unaffected = same_entry_or_none(F.col(f"{EXPECTED}_entry"), F.col(f"{COMPLETE}_entry"), identity)
    verdicts[COMPLETENESS] = F.when(unaffected, KEPT).otherwise(MISSED)
    known = F.col(f"{EXPECTED}_entry").is_not_null() | F.col(f"{COMPLETE}_entry").is_not_null()
    written = (F.col(f"{KAFKA}_revisions") > 0) | (F.col(f"{DELTA}_revisions") > 0)
    facts = {IS_HELD: held, **{f"{place}_is_dense": is_dense[place] for place in PLACES}}
    return _with_other_place(lined_up.where(known | written).with_columns(verdicts | facts), held, compacted)


def _lined_up(claims: Frame, identity: Identity, kept_since_ms: int, in_delta_since_ms: int) -> Frame:
    """First per revision: one that only batches after the cut have written is none of ours; then per identity."""
    per_revision = claims.group_by(*IDENTITY, REVISION).agg(
        *(F.largest(F.when(F.col(SIDE) == side, F.col(ENTRY))).alias(side) for side in (EXPECTED, COMPLETE)),
        *(column for place in (*PLACES, LATER) for column in _copies_at(place)),
    )
    mine = per_revision.where(~((F.col(f"{LATER}_copies") > 0) & (F.col(f"{DELTA}_copies") == 0)))
    on_kafka, in_delta = (F.col(f"{place}_copies") > 0 for place in (KAFKA, DELTA))
    may_be_gone = F.col(f"{DELTA}_entry").part(AT_MS) < F.lit(kept_since_ms)
    was_removed = F.col(f"{KAFKA}_entry").part(AT_MS) < F.lit(in_delta_since_ms)
    differ = ~same_entry(F.col(f"{KAFKA}_entry"), F.col(f"{DELTA}_entry"), identity)
    mine = mine.with_columns(
        {
            f"{KAFKA}_lacks": in_delta & ~on_kafka & ~may_be_gone,
            f"{DELTA}_lacks": on_kafka & ~in_delta & ~was_removed,
            _DIFFER: on_kafka & in_delta & differ,
        }
    )
    return mine.group_by(*IDENTITY).agg(
        *(F.largest(side).alias(f"{side}_raw") for side in (EXPECTED, COMPLETE)),
        F.coalesce(F.any_holds(_DIFFER), F.lit(False)).alias(_DIFFER),
        *(column for place in PLACES for column in _summary_of(place)),
    )


def _copies_at(place: str) -> list[Column]:
    entry = F.when(F.col(SIDE) == place, F.col(ENTRY))
    return [
        F.count_if(F.col(SIDE) == place).cast("long").alias(f"{place}_copies"),
        F.largest(entry).alias(f"{place}_entry"),
        (F.largest(entry) != F.smallest(entry)).alias(f"{place}_contradictory"),
        F.any_holds((F.col(SIDE) == place) & F.col(STANDING)).alias(f"{place}_stands"),
        F.all_values(F.when(F.col(SIDE) == place, F.col(EVIDENCE))).alias(f"{place}_evidence"),
    ]


def _summary_of(place: str) -> list[Column]:
    there = F.col(f"{place}_copies") > 0
    revision = F.when(there, F.col(REVISION))
    evidence = F.col(f"{place}_evidence")
    return [
        F.coalesce(F.largest(f"{place}_copies"), F.lit(0)).alias(f"{place}_copies"),
        F.count_if(there).cast("long").alias(f"{place}_revisions"),
        F.coalesce(F.any_holds(f"{place}_lacks"), F.lit(False)).alias(f"{place}_lacks"),
        F.smallest(revision).alias(f"{place}_lowest"),
        F.largest(F.when(F.col(f"{place}_stands"), F.col(REVISION))).alias(f"{place}_stood"),
        F.largest(revision).alias(f"{place}_highest"),
        F.coalesce(F.any_holds(there & F.col(f"{place}_contradictory")), F.lit(False)).alias(f"{place}_contradictory"),
        F.of_largest(f"{place}_entry", revision).alias(f"{place}_last"),
        F.of_smallest(f"{place}_entry", F.when(F.col(_DIFFER), F.col(REVISION))).alias(f"{place}_differing"),
        _first(evidence).alias(f"{place}_evidence"),
        _first(F.when(F.col(_DIFFER), evidence)).alias(f"{place}_differing_evidence"),
    ]


def _first(evidence: Column) -> Column:
    found = F.part_of_list(F.sorted_list(F.flattened(F.all_values(evidence))), 1, MAX_EVIDENCE)
    return F.coalesce(found, F.array())


def _verdict_of_latest(place: str, identity: Identity, held: Column, is_dense: Column) -> Column:
    def at(name: str) -> Column:
        return F.col(f"{place}_{name}")

    expected = F.col(f"{EXPECTED}_entry")
    is_there = F.coalesce(~at("last").part(IS_NULL), F.lit(False))
    last = F.when(is_there, at("last"))
    verdict = F.when(at("lowest") == NO_REVISION, EXTRA).when(at("contradictory"), ALTERED)
    verdict = verdict.when(~held & expected.is_null() & is_there, EXTRA)
    verdict = verdict.when(~held & expected.is_not_null() & ~is_there, LOST)
    verdict = verdict.when(~held & ~same_entry_or_none(last, expected, identity), ALTERED)
    # what goes on from a revision that an earlier audit saw writes none before it
    verdict = verdict.when((at("copies") > 1) | F.coalesce(at("lowest") < at("stood"), F.lit(False)), DUPLICATED)
    first = F.coalesce(at("stood"), at("lowest") if identity.was_added else F.lit(0))
    has_gap = at("revisions") != at("highest") + 1 - first
    return verdict.when(is_dense & has_gap, LOST).otherwise(MATCH)


def _with_other_place(judged: Frame, held: Column, compacted: bool) -> Frame:
    """A revision that only one place has: both are written by one batch.

    The last one is lost, or extra, on Kafka; one before it is lost where it lacks, unless compaction took it. Where the
    places contradict each other about one before it, it is altered in both: which of them was changed is not known,
    for the recompute makes the last one only.
    """
    kafka, delta = (F.coalesce(f"{place}_highest", F.lit(NO_REVISION)) for place in PLACES)
    both = (F.col(f"{KAFKA}_verdict") == MATCH) & (F.col(f"{DELTA}_verdict") == MATCH)
    judgable = both & (held | F.col(f"{EXPECTED}_entry").is_not_null())
    kafka_lacks = (kafka < delta) | (F.col(f"{KAFKA}_lacks") & F.lit(not compacted))
    delta_lacks = F.col(f"{DELTA}_lacks") & (kafka <= delta)
    differ = F.col(_DIFFER)
    faults = {
        KAFKA: F.when(kafka > delta, EXTRA).when(differ, ALTERED).when(kafka_lacks, LOST),
        DELTA: F.when(differ, ALTERED).when(delta_lacks, LOST),
    }
    found: dict[str, Column] = {}
    for place in PLACES:
        verdict, evidence = f"{place}_verdict", f"{place}_evidence"
        found |= {
            # ``judgable`` once for each place: Spark puts the whole of it wherever it is named
            verdict: F.coalesce(F.when(judgable, faults[place]), F.col(verdict)),
            f"{place}_entry": F.col(f"{place}_last"),
            shown_of(place): F.when(differ, F.col(f"{place}_differing")).otherwise(F.col(f"{place}_last")),
            evidence: F.when(differ, F.col(f"{place}_differing_evidence")).otherwise(F.col(evidence)),
        }
    return judged.with_columns(found)


def shown_of(place: str) -> str:
    """The column of the entry that a difference shows: the last one, or the one that the other place contradicts."""
    return f"{place}_shown"


def judged_rows(claims: Frame, identity: Identity) -> Frame:
    """One row for each identity of ``claims``: verdicts, and per side the entry that tells most, with evidence."""
    lined_up = claims.group_by(*IDENTITY).agg(
        *(F.sorted_values(F.when(F.col(SIDE) == side, F.col(ENTRY))).alias(side) for side in _SIDES),
        *(_evidence(place) for place in PLACES),
    )
    only_later = (F.size(LATER) > 0) & (F.size(EXPECTED) == 0) & (F.size("delta") == 0)
    mine = lined_up.where(~only_later)
    verdicts = {f"{place}_verdict": _verdict_of_every(F.col(place), identity) for place in PLACES}
    unaffected = same_bag(F.col(EXPECTED), F.col(COMPLETE), identity)
    verdicts[COMPLETENESS] = F.when(unaffected, KEPT).otherwise(MISSED)
    return mine.with_columns(verdicts).with_columns(
        {
            **{f"{side}_entry": F.element_at(side, F.lit(1)) for side in (EXPECTED, COMPLETE)},
            **{f"{place}_entry": _telling(F.col(place), identity) for place in PLACES},
        }
    )


def _verdict_of_every(found: Column, identity: Identity) -> Column:
    expected = F.col(EXPECTED)
    strange = F.some_hold(found, lambda one: ~_is_in(one, expected, identity))
    return (
        F.when(same_bag(expected, found, identity), MATCH)
        .when(F.size(expected) == 0, EXTRA)
        .when(F.size(found) == 0, LOST)
        .when(strange, ALTERED)
        .when(F.size(found) > F.size(expected), DUPLICATED)
        .otherwise(LOST)
    )


def same_bag(one: Column, other: Column, identity: Identity) -> Column:
    """Whether two lists of entries hold the same rows. Both are sorted, doubles last: equal bags lie side by side."""
    if identity.is_timed and not any(kind.kind == "double" for kind in identity.fields.values()):
        return one.equals_or_both_null(other)

    def same_at(place: Column) -> Column:
        return same_entry(F.element_at(one, place), F.element_at(other, place), identity)

    return (F.size(one) == F.size(other)) & F.each_holds(F.sequence(1, F.size(one)), same_at)


def _is_in(one: Column, rows: Column, identity: Identity) -> Column:
    return F.some_hold(rows, lambda other: same_entry(one, other, identity))


def _telling(found: Column, identity: Identity) -> Column:
    """The first row that is not expected, else the first."""
    strange = F.filtered(found, lambda one: ~_is_in(one, F.col(EXPECTED), identity))
    return F.coalesce(F.element_at(strange, F.lit(1)), F.element_at(found, F.lit(1)))


def _evidence(place: str) -> Column:
    names = F.sorted_values(F.when(F.col(SIDE) == place, F.col(EVIDENCE)))
    return F.part_of_list(names, 1, MAX_EVIDENCE).alias(f"{place}_evidence")


def of_stream(outputs: Frame, identity: Identity) -> Frame:
    """Claims of the rows in the sink's table, each with ``WRITTEN_AT``."""
    evidence = F.concat_known(f"outputs/{identity.written.table} batch ", F.col(GENERATION), "/", F.col(BATCH))
    return of_rows(outputs, identity, F.lit(DELTA), evidence, **{WRITTEN_AT: _at(F.lit(OF_STREAM))})


def of_backfills(corrections: Frame, identity: Identity, **more: Column) -> Frame:
    """The same of the rows in the table of its corrections; ``more`` are further columns.

    Those of an earlier release that name no batch are the newest of all.
    """
    if GENERATION not in corrections.columns:
        corrections = corrections.with_columns({GENERATION: F.lit(_MAX_INT), BATCH: F.lit(_MAX_INT)})
    evidence = F.concat_known(f"corrections/{identity.written.table} ", F.col(BACKFILL))
    number = F.coalesce(BACKFILL_NUMBER, F.lit(0))
    return of_rows(corrections, identity, F.lit(DELTA), evidence, **{WRITTEN_AT: _at(number), **more})


def seen_rows(written: Frame, identity: Identity) -> Frame:
    """One row for each identity of ``written``: ``SEEN`` (sorted entries of what readers see, deletions too), the
    ``HIGHEST`` revision.

    ``CORRECTED_AT`` is when it was last corrected, null where it was not; ``GOES_ON``: the stream has written it since.
    """
    at = F.col(WRITTEN_AT)
    number = at.part("number")
    told = F.struct(at.alias(WRITTEN_AT), F.col(REVISION).alias(REVISION), F.col(ENTRY).alias(ENTRY))
    grouped = written.group_by(*IDENTITY).agg(
        F.largest(REVISION).alias(HIGHEST),
        F.largest(F.when(number > OF_STREAM, at)).alias(CORRECTED_AT),
        F.all_values(told).alias("rows"),
    )
    corrected_at = F.col(CORRECTED_AT)
    since = F.filtered(F.col("rows"), lambda one: corrected_at.is_null() | (one.part(WRITTEN_AT) > corrected_at))
    correction = F.filtered(F.col("rows"), lambda one: one.part(WRITTEN_AT) == corrected_at)
    current = F.when(F.size(since) > 0, since).otherwise(correction)
    if identity.is_latest:
        current = F.part_of_list(F.sorted_list(current, falling=True), 1, 1)
    entries = F.mapped(current, lambda one: one.part(ENTRY))
    return grouped.select(
        *IDENTITY,
        F.sorted_list(entries).alias(SEEN),
        HIGHEST,
        CORRECTED_AT,
        (corrected_at.is_not_null() & (F.size(since) > 0)).alias(GOES_ON),
    )


def sees(seen: Column, complete: Column, identity: Identity) -> Column:
    """Whether readers who see the entries ``seen`` see what ``complete`` has; a row that was deleted is none."""
    nothing = (F.size(complete) == 0) & F.each_holds(seen, lambda entry: entry.part(IS_NULL))
    return nothing | same_bag(seen, complete, identity)


def _at(number: Column) -> Column:
    return F.struct(
        F.col(GENERATION).cast("long").alias("generation"),
        F.col(BATCH).cast("long").alias("batch"),
        number.cast("long").alias("number"),
    )
