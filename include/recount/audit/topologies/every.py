"""Verdicts on sinks of which every row counts: the rows of one origin, expected and found, as bags."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from recount.audit.completeness import COMPLETENESS, KEPT, MISSED
from recount.audit.copies import LATER
from recount.audit.fidelity import ALTERED, DUPLICATED, EXTRA, LOST, MATCH, PLACES
from recount.audit.results import COMPLETE, EXPECTED
from recount.audit.topologies.claims import ENTRY, EVIDENCE, IDENTITY, SIDE, same_entry
from recount.audit.topologies.identity import Identity
from recount.audit.topologies.latest import MAX_EVIDENCE

_SIDES = (EXPECTED, COMPLETE, *PLACES, LATER)


def judged_rows(claims: DataFrame, identity: Identity) -> DataFrame:
    """One row for each identity of ``claims``: verdicts, and per side the entry that tells most, with evidence."""
    lined_up = claims.groupBy(*IDENTITY).agg(
        *(F.array_sort(F.collect_list(F.when(F.col(SIDE) == side, F.col(ENTRY)))).alias(side) for side in _SIDES),
        *(_evidence(place) for place in PLACES),
    )
    only_later = (F.size(LATER) > 0) & (F.size(EXPECTED) == 0) & (F.size("delta") == 0)
    mine = lined_up.where(~only_later)
    verdicts = {f"{place}_verdict": _verdict(F.col(place), identity) for place in PLACES}
    unaffected = same_bag(F.col(EXPECTED), F.col(COMPLETE), identity)
    verdicts[COMPLETENESS] = F.when(unaffected, KEPT).otherwise(MISSED)
    return mine.withColumns(verdicts).withColumns(
        {
            **{f"{side}_entry": F.try_element_at(side, F.lit(1)) for side in (EXPECTED, COMPLETE)},
            **{f"{place}_entry": _telling(F.col(place), identity) for place in PLACES},
        }
    )


def _verdict(found: Column, identity: Identity) -> Column:
    expected = F.col(EXPECTED)
    strange = F.exists(found, lambda one: ~_is_in(one, expected, identity))
    return (
        F.when(same_bag(expected, found, identity), MATCH)
        .when(F.size(expected) == 0, EXTRA)
        .when(F.size(found) == 0, LOST)
        .when(strange, ALTERED)
        .when(F.size(found) > F.size(expected), DUPLICATED)
        .otherwise(LOST)
    )


def same_bag(one: Column, other: Column, identity: Identity) -> Column:
    """Whether two arrays of entries hold the same rows. Both are sorted, doubles last: equal bags lie side by side."""
    pairs = F.zip_with(one, other, lambda a, b: F.coalesce(same_entry(a, b, identity), F.lit(False)))
    return (F.size(one) == F.size(other)) & F.forall(pairs, lambda same: same)


def _is_in(one: Column, rows: Column, identity: Identity) -> Column:
    return F.exists(rows, lambda other: same_entry(one, other, identity))


def _telling(found: Column, identity: Identity) -> Column:
    """The first row that is not expected, else the first."""
    strange = F.filter(found, lambda one: ~_is_in(one, F.col(EXPECTED), identity))
    return F.coalesce(F.try_element_at(strange, F.lit(1)), F.try_element_at(found, F.lit(1)))


def _evidence(place: str) -> Column:
    names = F.collect_list(F.when(F.col(SIDE) == place, F.col(EVIDENCE)))
    return F.slice(F.array_sort(names), 1, MAX_EVIDENCE).alias(f"{place}_evidence")
