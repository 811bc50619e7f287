"""Differences of an output, in words: which row of which sink, what it should be, what it is, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from recount.audit.compare.claims import EVIDENCE
from recount.audit.compare.compared_rows import COMPARED
from recount.audit.compare.correction_claims import SAID
from recount.audit.compare.fidelity import ALTERED, DUPLICATED, EXPIRED, EXTRA, LOST, MATCH, PLACES
from recount.audit.compare.judge import SINK, TABLE
from recount.audit.compare.published import DELTA, KAFKA
from recount.audit.compare.results import EXPECTED
from recount.audit.compare.single_judge import MAX_WRONG
from recount.audit.explain.causes import OUTPUT, unlisted_difference
from recount.audit.explain.completeness import COMPLETENESS, CORRECTION
from recount.certificate.finding import Difference
from recount.declare.operators.keys_and_fields import in_several_partitions
from recount.declare.operators.nodes import WINDOW_START
from recount.declare.topology import Topology
from recount.recompute.operators.recomputed import Recomputed

_CONTRADICTED = (
    "topic and table contradict each other about an earlier value of this row; the log gives only the last one, so it "
    "does not say which of them was changed"
)
_CAUSES = {
    LOST: "the log makes this row and it was due: it was not written here, or was removed afterwards",
    DUPLICATED: "one row is there more often than the log makes it",
    ALTERED: "the value or time is not what the log gives, or copies of one row contradict each other",
    EXTRA: "no record that was on time makes this row, or it was not due yet, or was not written by this stream",
}
_OF_ROWS = (OUTPUT, COMPLETENESS)


def output_differences(judged: DataFrame) -> list[Difference]:
    """The wrong rows of ``judged`` (``Judge.judged``) by sink, window and key; beyond ``MAX_WRONG``, how many."""
    wrong = F.lit(False)
    for place in PLACES:
        wrong = wrong | ~F.col(f"{place}_verdict").isin(MATCH, EXPIRED)
    rows = judged.where(wrong).orderBy(SINK, WINDOW_START, "key", "origin").limit(MAX_WRONG + 1).collect()
    listed = [
        _difference(row, place)
        for row in rows[:MAX_WRONG]
        for place in PLACES
        if row[f"{place}_verdict"] not in (MATCH, EXPIRED)
    ]
    if len(rows) <= MAX_WRONG:
        return listed
    return [*listed, unlisted_difference(judged.where(wrong).count() - MAX_WRONG, ())]


def correction_differences(judged: DataFrame) -> list[Difference]:
    """Corrections that are not on Kafka exactly as in Delta, of ``judged`` rows."""
    wrong = judged.where(F.col(CORRECTION).isNotNull()).orderBy(SINK, WINDOW_START, "key", "origin")
    return [
        Difference(
            kind=CORRECTION,
            place=row[SINK],
            verdict=row[CORRECTION],
            key=row.key,
            window_start=row.window_start,
            window_end=row.window_end,
            expected=row[SAID][DELTA],
            actual=row[SAID][KAFKA],
            cause="a backfill's correction is not on Kafka exactly as in the corrections table",
            evidence=tuple(row[SAID][EVIDENCE]),
            origin=row.origin,
        )
        for row in wrong.limit(MAX_WRONG).collect()
    ]


def _difference(row: Row, place: str) -> Difference:
    verdict = row[f"{place}_verdict"]
    made_of = row.origin.split("+") if row.origin and not row.origin.startswith("at ") else []
    return Difference(
        kind=OUTPUT,
        place=f"topic {row[SINK]}" if place == KAFKA else f"table outputs/{row[TABLE]}",
        verdict=verdict,
        key=row.key,
        window_start=row.window_start,
        window_end=row.window_end,
        expected=row[f"{EXPECTED}_text"],
        actual=row[f"{place}_text"],
        cause=_CONTRADICTED if _is_contradicted(row) else _CAUSES[verdict],
        evidence=(*row[f"{place}_evidence"], *made_of),
        origin=row.origin,
    )


def _is_contradicted(row: Row) -> bool:
    both = all(row[f"{place}_verdict"] == ALTERED for place in PLACES)
    return both and bool(row[COMPARED].places_differ)


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
    said = f"this key lies in several partitions, whose order counts: first at {', '.join(places)}"
    return replace(
        difference,
        cause=f"{difference.cause}; {said}" if difference.cause else said,
        evidence=(*difference.evidence, *(one for one in places if one not in difference.evidence)),
    )
