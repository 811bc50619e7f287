"""Differences of an output, in words: which row of which sink, what it should be, what it is, and why.

Claims of each side about the judged rows are in the columns of ``recount.audit.compare.fidelity``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from recount.audit.compare.claims import AT_MS, EVIDENCE, IDENTITY, IS_NULL, REVISION, ROW
from recount.audit.compare.correction_claims import CORRECTED, SAID
from recount.audit.compare.fidelity import ALTERED, EXPIRED, MATCH, PLACES, SCHEMA
from recount.audit.compare.identity import Identity
from recount.audit.compare.published import DELTA, KAFKA
from recount.audit.compare.results import EXPECTED
from recount.audit.explain.causes import OUTPUT, cause_of, unlisted_difference
from recount.audit.explain.completeness import COMPLETENESS, CORRECTION
from recount.certificate.finding import Difference
from recount.declare.columns import RESULT_TIME
from recount.declare.operators.keys_and_fields import in_several_partitions
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.topology import Topology, Written
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.operators.recomputed import Recomputed

SINK, TABLE, SEEN_TEXT = "sink", "table", "seen_text"
_CONTRADICTED = (
    "topic and table contradict each other about an earlier value of this row; the log gives only the last one, so it "
    "does not say which of them was changed"
)
_OF_ROWS = (OUTPUT, COMPLETENESS)
MAX_WRONG = 10_000
"""So many wrong rows are followed one by one; all are counted."""
_ORDER = (SINK, WINDOW_START, "key", "origin", WINDOW_END)
_VERDICTS = (*(f"{place}_verdict" for place in PLACES), COMPLETENESS)


def verdict_counts(judged: Frame) -> dict[str, int]:
    """The rows of ``judged`` by verdict: ``kafka match``, ``delta lost``, ``completeness missed``."""
    counts: Counter[str] = Counter()
    for row in judged.group_by(*_VERDICTS).agg(F.count_of().alias("n")).rows():
        for column in _VERDICTS:
            counts[f"{column.removesuffix('_verdict')} {row[column]}"] += row["n"]
    return dict(counts)


def output_differences(judged: Frame, topology: Topology) -> list[Difference]:
    """The wrong rows of ``judged`` (``Judge.judged``) by sink, window and key; beyond ``MAX_WRONG``, how many."""
    written = {node.topic.name: node for node in topology.written}
    wrong = F.lit(False)
    for place in PLACES:
        wrong = wrong | ~F.col(f"{place}_verdict").is_in([MATCH, EXPIRED])
    rows = judged.where(wrong).sorted_by(*_ORDER, at_most=MAX_WRONG + 1).rows()
    listed = [
        _difference(row, place, written[row[SINK]])
        for row in rows[:MAX_WRONG]
        for place in PLACES
        if row[f"{place}_verdict"] not in (MATCH, EXPIRED)
    ]
    if len(rows) <= MAX_WRONG:
        return listed
    return [*listed, unlisted_difference(judged.where(wrong).number() - MAX_WRONG, ())]


def correction_differences(judged: Frame) -> list[Difference]:
    """Corrections that are not on Kafka exactly as in Delta, of ``judged`` rows."""
    wrong = judged.where(F.col(CORRECTION).is_not_null()).sorted_by(*_ORDER, at_most=MAX_WRONG)
    return [
        Difference(
            kind=CORRECTION,
            place=row[SINK],
            verdict=row[CORRECTION],
            key=row["key"],
            window_start=row["window_start"],
            window_end=row["window_end"],
            expected=row[SAID][DELTA],
            actual=row[SAID][KAFKA],
            cause="a backfill's correction is not on Kafka exactly as in the corrections table",
            evidence=tuple(row[SAID][EVIDENCE]),
            origin=row["origin"],
        )
        for row in wrong.rows()
    ]


def _difference(row: Mapping[str, Any], place: str, written: Written) -> Difference:
    verdict = row[f"{place}_verdict"]
    made_of = row["origin"].split("+") if row["origin"] and not row["origin"].startswith("at ") else []
    return Difference(
        kind=OUTPUT,
        place=f"topic {row[SINK]}" if place == KAFKA else f"table outputs/{row[TABLE]}",
        verdict=verdict,
        key=row["key"],
        window_start=row["window_start"],
        window_end=row["window_end"],
        expected=row[f"{EXPECTED}_text"],
        actual=row[f"{place}_text"],
        cause=_CONTRADICTED if _is_contradicted(row) else cause_of(row, place, written),
        evidence=(*row[f"{place}_evidence"], *made_of),
        origin=row["origin"],
    )


def _is_contradicted(row: Mapping[str, Any]) -> bool:
    both = all(row[f"{place}_verdict"] == ALTERED for place in PLACES)
    return both and bool(row[COMPARED]["places_differ"])


def with_partitions(differences: Sequence[Difference], topology: Topology, truth: Recomputed) -> list[Difference]:
    """``differences``; where a key is in several partitions the cause names them, with an offset in each.

    Of topologies with an operator to which the order of a record key's records means something, and of the log that was
    recomputed; a key that changed partition between two audits is in one there.
    """
    topics = [source.topic.name for source in topology.sources if in_several_partitions(topology, source.topic.name)]
    keys = {one.key for one in differences if one.kind in _OF_ROWS and one.key is not None}
    if not topics or not keys:
        return list(differences)
    places = truth.partitions_of(topics, keys)
    return [_with(one, places.get(one.key, ())) if one.kind in _OF_ROWS and one.key else one for one in differences]


def _with(difference: Difference, places: Sequence[str]) -> Difference:
    if not places:
        return difference
    said = f"this key is in several partitions, whose order counts: first at {', '.join(places)}"
    return replace(
        difference,
        cause=f"{difference.cause}; {said}" if difference.cause else said,
        evidence=(*difference.evidence, *(one for one in places if one not in difference.evidence)),
    )


COMPARED = "compared"
_TYPES: dict[pl.DataType, str] = {
    pl.String(): "string",
    pl.Int32(): "int",
    pl.Int64(): "long",
    pl.Boolean(): "boolean",
    pl.List(pl.String()): "string[]",
    pl.List(pl.Float64()): "double[]",
}
_OF_PLACE = ("lowest", "highest", "stood", "revisions", "copies", "lacks")


def compared(identity: Identity, kept_since_ms: int | None, in_delta_since_ms: int | None) -> Column:
    """A struct of all columns of ``fidelity.SCHEMA`` but place and identity, of a judged frame of the sink.

    The topic keeps its records since ``kept_since_ms``, the table its rows since ``in_delta_since_ms``; None: for ever.
    """
    compacted = "compact" in identity.written.topic.cleanup_policy
    found = {
        "expected_at_ms": F.col(f"{EXPECTED}_entry").part(AT_MS),
        "kafka_kept_since_ms": F.lit(kept_since_ms),
        "delta_kept_since_ms": F.lit(in_delta_since_ms),
        "compaction_takes": F.lit(compacted) & (F.lit(not identity.is_latest) | F.col(CORRECTED).is_not_null()),
        "is_held": F.lit(False),
        **(_of_latest(identity) if identity.is_latest else _of_rows(identity)),
        **_of_corrections(identity),
    }
    told = {name: _TYPES[kind] for name, kind in SCHEMA.items() if name not in ("sink", "table", *IDENTITY)}
    columns = [found.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in told.items()]
    return F.struct(*columns).alias(COMPARED)


def reconciled(judged: Frame) -> Frame:
    """The rows of the table ``reconciliation``: what each side says of ``judged`` rows, and no verdict."""
    told = (F.col(COMPARED).part(name).alias(name) for name in SCHEMA if name not in (SINK, TABLE, *IDENTITY))
    return judged.select(SINK, TABLE, *IDENTITY, *told)


def _of_latest(identity: Identity) -> dict[str, Column]:
    found = {"is_held": F.coalesce("is_held", F.lit(False)), "places_differ": F.col("places_differ")}
    for side in (EXPECTED, *PLACES):
        rows = F.filtered(F.array(F.col(f"{side}_entry")), lambda one: F.coalesce(~one.part(IS_NULL), F.lit(False)))
        found |= _told(side, rows, identity)
    for place in PLACES:
        first = F.col(f"{place}_lowest") if identity.was_added else F.lit(0)
        found |= {f"{place}_{name}": F.col(f"{place}_{name}") for name in _OF_PLACE}
        found[f"{place}_first"] = F.when(F.col(f"{place}_is_dense"), F.coalesce(f"{place}_stood", first))
    is_whole = F.lit("compact" not in identity.written.topic.cleanup_policy)
    return found | {f"{KAFKA}_lacks": found[f"{KAFKA}_lacks"] & is_whole}


def _of_rows(identity: Identity) -> dict[str, Column]:
    found: dict[str, Column] = {}
    for side in (EXPECTED, *PLACES):
        found |= _told(side, F.col(side), identity)
    return found


def _of_corrections(identity: Identity) -> dict[str, Column]:
    return {name: column for place in PLACES for name, column in _corrections_at(place, identity).items()}


def _corrections_at(place: str, identity: Identity) -> dict[str, Column]:
    """Each row of a correction after its revision; of a sink whose rows all count a correction can have several."""

    def told(one: Column) -> Column:
        return F.mapped(
            one.part(place), lambda entry: F.concat_known(one.part(REVISION), " ", exact_text(entry, identity))
        )

    corrected = F.col(CORRECTED)
    rows = F.flattened(F.mapped(corrected, lambda one: one.part(place)))
    most = F.largest_in(F.mapped(corrected, lambda one: F.size(one.part(place))))
    return {
        f"{place}_latest": F.flattened(F.mapped(corrected, told)),
        f"{place}_latest_doubles": _told(place, rows, identity)[f"{place}_doubles"],
        f"{place}_corrections": most if identity.is_latest else F.least(most, F.lit(1)),
    }


def _told(side: str, entries: Column, identity: Identity) -> dict[str, Column]:
    doubles = [name for name, kind in identity.fields.items() if kind.kind == "double"]
    values = F.flattened(F.mapped(entries, lambda one: F.array(*(one.part(ROW).part(name) for name in doubles))))
    return {
        side: F.mapped(entries, lambda one: exact_text(one, identity)),
        f"{side}_doubles": values if doubles else F.array(),
    }


def exact_text(entry: Column, identity: Identity) -> Column:
    """The entry without its doubles, and without its time where the log does not determine it."""
    exact = [entry.part(ROW).part(name).alias(name) for name, kind in identity.fields.items() if kind.kind != "double"]
    at_ms = entry.part(AT_MS) if identity.is_timed else F.lit(None).cast("long")
    return F.as_json(F.struct(*exact, entry.part(IS_NULL).alias("recount_is_null"), at_ms.alias(RESULT_TIME)))
