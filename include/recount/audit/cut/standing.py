"""Claims that an audit keeps, so that the next one reads only what was written since.

Kept are the claims about every row that can still change: of a table each key, of windows and records those no older
than the look back. Where such a row is in order and has revisions, the last one is kept: they go on from there. Where a
row is wrong everything is kept, whatever its age, and its Delta rows are read again until it is in order. A row that
is missed, or that a backfill has corrected, is kept too: corrections are judged whenever they come. What was on
Kafka before its batch was judged is kept for the audit that judges it.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from operator import or_

from recount.audit.compare.claims import AT_MS, ENTRY, EVIDENCE, IDENTITY, IS_NULL, REVISION, ROW, SIDE, STANDING
from recount.audit.compare.differences import exact_text
from recount.audit.compare.fidelity import EXPIRED, MATCH, PLACES
from recount.audit.compare.identity import Identity
from recount.audit.compare.published import DELTA, KAFKA, LATER
from recount.audit.compare.results import COMPLETE, EXPECTED
from recount.audit.explain.completeness import COMPLETENESS, CORRECTION, KEPT
from recount.audit.integrity.table_checksums import Unsettled
from recount.declare.operators.nodes import WINDOW_END
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column, Window
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.rules.result_rules import adds_up
from recount.recompute.spark_columns import spark_type

MAX_UNSETTLED = 1_000
_SAME_AS_TEXT = ("string", "long", "boolean")
"""Keys of which Spark and Polars make the same text."""
_WRONG, _FOLLOWED, _PENDING, _RECENT, _HELD, _RANK = (
    "__wrong",
    "__followed",
    "__pending",
    "__recent",
    "__held",
    "__rank",
)


def with_carried(
    fresh: Frame,
    carried: Frame,
    identity: Identity,
    again_since_ms: int | None = None,
    again_ends_after_ms: int | None = None,
) -> Frame:
    """``fresh`` claims and the ``carried`` ones of the audit before; what the recompute says again replaces the latter.

    A row of a stream leaves once, so what was expected of it before still is. Without lateness it says all records
    since ``again_since_ms`` again, and all windows that end after ``again_ends_after_ms``: of those whose key has
    changed since, a row of another key and window may be left of what was carried.
    """
    if again_ends_after_ms is not None and identity.has_bounds and not identity.is_latest:
        carried = carried.where((F.col(SIDE) != COMPLETE) | (F.col(WINDOW_END) <= again_ends_after_ms))
    if again_since_ms is not None:
        carried = carried.where((F.col(SIDE) != COMPLETE) | (F.col(ENTRY).part(AT_MS) < again_since_ms))
    replaced = (EXPECTED, COMPLETE) if identity.is_latest else (COMPLETE,)
    said = fresh.where(F.col(SIDE).is_in(replaced)).select(*IDENTITY, SIDE).distinct()
    known = fresh.union(carried.join(said, (*IDENTITY, SIDE), "left_anti", nulls_fit=True))
    if identity.is_latest or not identity.has_bounds:
        return known
    # a window that was merged into another is said again as a deletion
    return known.where((F.col(SIDE) != COMPLETE) | ~F.col(ENTRY).part(IS_NULL))


def untold(fresh: Frame, carried: Frame) -> Frame:
    """The identities of ``fresh`` rows of which the recompute says nothing, and of which nothing was ``carried``.

    They were judged and let go, and somebody has written them again.
    """
    said = F.any_holds(F.col(SIDE).is_in([EXPECTED, COMPLETE]))
    return not_among(fresh.group_by(*IDENTITY).agg(said.alias("__said")).where(~F.col("__said")), carried)


def with_added(carried: Frame, added: Frame, identity: Identity) -> Frame:
    """The ``carried`` claims, and to the results that were recomputed ``added`` what later records add to them."""
    group = [*IDENTITY, SIDE]
    asked = added.select(*group).distinct()
    both = carried.join(asked, group, "left_semi", nulls_fit=True).select(*added.columns).union(added)
    assert adds_up(identity.written.input)
    aggregates = identity.written.input.aggregates

    def joined(name: str) -> Column:
        value = F.col(ENTRY).part(ROW).part(name)
        kind = aggregates[name].kind if name in aggregates else "max"
        of_both = {"count": F.total, "sum": F.total, "min": F.smallest, "max": F.largest}[kind](value)
        return of_both.try_cast(spark_type(identity.fields[name])).alias(name)

    entry = F.struct(
        F.lit(False).alias(IS_NULL),
        F.struct(*(joined(name) for name in identity.fields)).alias(ROW),
        F.largest(F.col(ENTRY).part(AT_MS)).alias(AT_MS),
    )
    told = both.group_by(*group).agg(entry.alias(ENTRY))
    unwritten = {REVISION: F.lit(None).cast("int"), EVIDENCE: F.lit(None).cast("string")}
    made = told.with_columns({STANDING: F.lit(False), **unwritten}).select(*added.columns)
    return carried.join(asked, group, "left_anti", nulls_fit=True).union(made)


def added_to(fresh: Frame, carried: Frame) -> Frame:
    """The identities of which late records alone made ``fresh`` rows, and of which nothing was ``carried``.

    Where key and time identify rows, others of the same identity may have been judged and let go: a late
    record can be of any age.
    """
    is_late = F.all_hold(F.col(SIDE) == COMPLETE)
    late = fresh.group_by(*IDENTITY).agg(is_late.alias("__is_late")).where(F.col("__is_late"))
    return not_among(late, carried)


def not_among(claims: Frame, carried: Frame) -> Frame:
    """The identities of ``claims`` of which nothing was ``carried``."""
    known = carried.select(*IDENTITY).distinct()
    return claims.select(*IDENTITY).join(known, IDENTITY, "left_anti", nulls_fit=True)


def without_taken_back(carried: Frame, gone: Frame, identity: Identity) -> Frame:
    """The ``carried`` claims without those of the rows without lateness that are ``gone``: each takes one away."""
    row = [*IDENTITY, "__text", "__number"]
    number = F.row_number().over(Window.of(*row[:-1]))

    def numbered(claims: Frame) -> Frame:
        return claims.with_column("__text", exact_text(F.col(ENTRY), identity)).with_column("__number", number)

    complete = numbered(carried.where(F.col(SIDE) == COMPLETE))
    left = complete.join(numbered(gone).select(*row), row, "left_anti", nulls_fit=True).select(*carried.columns)
    return carried.where(F.col(SIDE) != COMPLETE).union(left)


def read_again(carried: Frame) -> Frame:
    """The identities whose Delta rows were not kept, with the revision that stood before them, if any did."""
    stood = F.largest(F.when(F.col(STANDING), F.col(REVISION)))
    by_identity = carried.group_by(*IDENTITY).agg(
        F.any_holds(F.col(SIDE) == DELTA).alias("__kept"), stood.alias(REVISION)
    )
    return by_identity.where(~F.col("__kept")).select(*IDENTITY, REVISION)


def to_keep(claims: Frame, judged: Frame, identity: Identity, since_ms: int) -> Frame:
    """Return the ``claims`` about a sink, which were ``judged``, that the next audit needs.

    ``since_ms`` is the end of the look back: rows before it, and windows that end before it, change no more. What is
    at it the recompute says again, so it is kept.
    """
    told = judged.select(
        *IDENTITY,
        (~_in_order()).alias(_WRONG),
        ((F.col(COMPLETENESS) != KEPT) | F.col(CORRECTION).is_not_null()).alias(_FOLLOWED),
    )
    known = claims.join(told, IDENTITY, "left", nulls_fit=True).with_columns(
        {
            _WRONG: F.coalesce(F.col(_WRONG), F.lit(False)),
            _FOLLOWED: F.coalesce(F.col(_FOLLOWED), F.lit(False)),
            _PENDING: _is_pending(identity),
            _RECENT: _is_recent(identity, since_ms),
            _HELD: _is_held(),
        }
    )
    in_order = ~F.col(_WRONG) & ~F.col(_PENDING)
    known = known.with_column(_HELD, F.col(_HELD) | F.any_holds(_PENDING).over(Window.of(*IDENTITY)))
    kept = (
        (F.col(_WRONG) & ~F.col(SIDE).is_in([DELTA, LATER]))
        | (F.col(_PENDING) & (F.col(SIDE) == KAFKA))
        | (in_order & (F.col(_RECENT) | F.col(_HELD) | F.col(_FOLLOWED)) & (F.col(SIDE) != LATER))
    )
    columns = [*claims.columns]
    if identity.is_latest:
        newest_first = Window.of(*IDENTITY, SIDE, _PENDING).sorted(F.col(REVISION).descending())
        known = known.with_column(_RANK, F.row_number().over(newest_first))
        kept &= ~in_order | (F.col(_RANK) == 1)
        stands = in_order & F.col(SIDE).is_in(PLACES)
        known = known.with_column(STANDING, F.col(STANDING) | stands)
    return known.where(kept).select(*columns)


def unsettled_rows(judged: Frame, identities: Sequence[Identity]) -> dict[Identity, Unsettled]:
    """Return the wrong rows of each sink: of many some, for nobody repairs so many one by one."""
    wrong = judged.where(~_in_order()).select("sink", *IDENTITY)
    found = defaultdict(list)
    for row in wrong.sorted_by("sink", *IDENTITY, at_most=MAX_UNSETTLED).rows():
        found[row["sink"]].append(tuple(row.values())[1:])
    return {
        one: Unsettled(
            key=one.written.key,
            has_bounds=one.has_bounds,
            has_origin=one.has_origin,
            is_latest=one.is_latest,
            rows=found[one.written.topic.name],
        )
        for one in identities
        if one.written.topic.name in found and one.written.fields[one.written.key].kind in _SAME_AS_TEXT
    }


def _in_order() -> Column:
    return ~reduce(or_, (~F.col(f"{place}_verdict").is_in([MATCH, EXPIRED]) for place in PLACES))


def _is_pending(identity: Identity) -> Column:
    """Whether only batches after the cut have written it: on Kafka it may be there already."""
    group = Window.of(*IDENTITY, *([REVISION] if identity.is_latest else []))
    mine = (DELTA,) if identity.is_latest else (DELTA, EXPECTED)
    by_later = F.any_holds(F.col(SIDE) == LATER).over(group)
    return by_later & ~F.any_holds(F.col(SIDE).is_in(mine)).over(group)


def _is_held() -> Column:
    """Whether it is to be written yet, though it is in order: a suppression holds it."""
    group = Window.of(*IDENTITY)
    return F.any_holds(F.col(SIDE) == EXPECTED).over(group) & ~F.any_holds(F.col(SIDE) == DELTA).over(group)


def _is_recent(identity: Identity, since_ms: int) -> Column:
    if identity.has_bounds:
        return F.col(WINDOW_END) >= F.lit(since_ms)
    if identity.is_latest:
        return F.lit(True)
    newest = F.largest(F.col(ENTRY).part(AT_MS)).over(Window.of(*IDENTITY))
    return newest >= F.lit(since_ms)
