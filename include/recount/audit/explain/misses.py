"""Grace misses of any sink: rows that unlimited grace would change, and the late records that can explain them.

A late record explains a row when it has the row's key and was late for a window that touches the row's, or for none
(a join, a deduplication); when the row is made of it; or, where the sink has another key than the operator that judged
it and no line explains the row otherwise, when its event time is within the row's window, or the row has no window.

These are the records that can have changed a row. Where they are several, the recomputes tell which of them did
(``recount.recompute.operators.tracing``): they alone are named.

A change of a table that a record did not find, because it came to the log when the record had been read, explains the
rows that are made of the record; of rows that do not say what they are made of, those of the record's key, or of any
key where the sink has another, whose window holds the record's event time.

``Beyond`` has the records that came too late for what an audit had carried to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recount.audit.carry.removed import kept_late
from recount.audit.certificate.assembly import MAX_LISTED
from recount.audit.compare.claims import IDENTITY, of_traced
from recount.audit.compare.correction_claims import COMPLETE_TEXT, GONE_MS
from recount.audit.compare.differences import SEEN_TEXT, SINK
from recount.audit.compare.identity import Identity, above_of, closing_windows
from recount.audit.compare.results import COMPLETE
from recount.audit.explain.completeness import COMPLETENESS, MISSED
from recount.certificate.finding import MAX_LATE_NAMED, Difference, GraceMiss
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START, Node, SelectKey, WindowedAggregate
from recount.declare.operators.processing import Deduplicate, InOrder
from recount.declare.topology import Topology, Written
from recount.declare.windows import SessionWindows, SlidingWindows, TimeWindows
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column, Window
from recount.recompute.frames.duck_frames import Frame, once, union_of
from recount.recompute.operators.recomputed import Recomputed
from recount.recompute.operators.tracing import RECORD, Tracing
from recount.recompute.rules.result_rules import adds_up
from recount.recompute.rules.time_rules import overdue_ms
from recount.runtime.errors import Terminal
from recount.tables.places import Released

_ROW = (SINK, *IDENTITY)
_PLACE = re.compile(r"(.+)-(\d+)@(\d+)")
_Row = tuple[Any, ...]
_Named = tuple[int, tuple[str, ...]]
"""How many records, and the first of them by their places."""
IS_OPEN = "is_open"
_PLACE_COLUMNS = ("topic", "partition", "offset")


def grace_misses(
    judged: Frame,
    late: Frame,
    unread: Frame,
    topology: Topology,
    *,
    sides: Sequence[Recomputed] = (),
    identities: Sequence[Identity] = (),
    before: Sequence[GraceMiss] = (),
) -> list[GraceMiss]:
    """Every missed row of ``judged`` with what explains it: lines of the ``late`` ledger, or ``unread`` changes.

    ``unread`` (``Recomputed.unread``) goes by what the stream's own ledger says that it had read. Where several records
    can have changed a row, those are named that make it by one of the ``sides``, the recomputes with lateness and
    without, and those that the audit ``before`` named of the same row; all of them where neither says any.
    """
    missed = _missed(judged, SEEN_TEXT, f"{COMPLETE}_text")
    explanations = [*_explanations(missed, late, topology), *_of_lookups(missed, unread, topology)]
    found = once(union_of([one.select("row", "late") for one in explanations]).distinct())
    possible, exact = _named(found), _told_by_window(topology)
    made_of: Mapping[_Row, _Named] = {}
    if sides and any(number > 1 for row, (number, _) in possible.items() if row[0] not in exact):
        made_of = _named(_made_of(found, missed, sides, identities))
    known = {_row_of(one): (one.late_records, one.late) for one in before}
    rows = missed.sorted_by(SINK, WINDOW_START, "key", "origin", WINDOW_END).rows()
    misses = []
    for one in rows:
        row = tuple(one["row"].values())
        number, named = possible.get(row, (0, ()))
        if one[SINK] not in exact and row in possible and (row in made_of or row in known):
            number, named = _together(made_of.get(row), known.get(row))
        misses.append(
            GraceMiss(
                key=one["key"],
                window_start=one["window_start"],
                window_end=one["window_end"],
                published=one[SEEN_TEXT],
                complete=one[f"{COMPLETE}_text"],
                late_records=number,
                late=named,
                explained=row in possible,
                sink=one[SINK],
                origin=one["origin"],
            )
        )
    return misses


def _told_by_window(topology: Topology) -> list[str]:
    """The topics of sinks of which a late record's windows say exactly which rows it would have changed."""
    return [
        sink.topic.name
        for sink in topology.written
        if adds_up(sink.input) and not any(map(_judges, above_of(sink.input)))
    ]


def _row_of(miss: GraceMiss) -> _Row:
    return (miss.sink, miss.key, miss.window_start, miss.window_end, miss.origin)


def _named(pairs: Frame) -> dict[_Row, _Named]:
    """Return for each ``row`` how many records there are, and the first of them."""
    record = F.struct(*_places())
    named = pairs.group_by("row").agg(
        F.size(F.distinct_values(record)).alias("n"),
        F.part_of_list(F.sorted_list(F.distinct_values(F.col("late"))), 1, MAX_LATE_NAMED).alias("late"),
    )
    return {tuple(one["row"].values()): (one["n"], tuple(at["place"] for at in one["late"])) for one in named.rows()}


def _together(now: _Named | None, before: _Named | None) -> _Named:
    """The records of both, in the order of the log."""
    now, before = now or (0, ()), before or (0, ())
    named = sorted({*now[1], *before[1]}, key=_in_the_log)
    records = {place.partition(" +")[0] for place in named}
    return max(now[0], before[0], len(records)), tuple(named[:MAX_LATE_NAMED])


def _in_the_log(place: str) -> tuple[str, int, int, str]:
    found = _PLACE.match(place)
    return (found[1], int(found[2]), int(found[3]), place) if found else (place, 0, 0, place)


def _places() -> list[Column]:
    return [F.col("late").part(name).alias(name) for name in _PLACE_COLUMNS]


def _made_of(found: Frame, missed: Frame, sides: Sequence[Recomputed], identities: Sequence[Identity]) -> Frame:
    """Return the pairs of ``found`` whose record makes the row by one of the ``sides``."""
    records = found.select(*_places()).distinct()
    tracing = Tracing(sides=sides, records=records)
    traced = [
        of_traced(tracing.results(one.written), one, RECORD).select(
            F.lit(one.written.topic.name).alias(SINK), *IDENTITY, RECORD
        )
        for one in identities
    ]
    reached = missed.select(*_ROW, "row").join(union_of(traced).distinct(), _ROW, nulls_fit=True)
    pairs = found.select("row", "late", F.struct(*_places()).alias(RECORD))
    return pairs.join(reached.select("row", RECORD).distinct(), ["row", RECORD], "left_semi").select("row", "late")


def still_unread(judged: Frame, unread: Frame, topology: Topology, open_since_ms: int) -> Frame:
    """Return the ``unread`` changes that the next audit needs again.

    Those that explain a missed row of ``judged``, and those of records since ``open_since_ms``: a row that they are
    counted in may not be due yet.
    """
    pairs = _of_lookups(_missed(judged), unread, topology)
    open_still = unread.where(F.col("event_ms") >= open_since_ms)
    return union_of([open_still, *(one.select("change").parts_of("change") for one in pairs)]).distinct()


def still_late(judged: Frame, late: Frame, topology: Topology, open_since_ms: int, released: Released | None) -> Frame:
    """The same of the ``late`` lines, which the stream removes from its ledger once they are ``released``.

    Of each missed row the newest ``MAX_LATE_NAMED``: every line of its key may be one, where it has no window.
    """
    pairs = union_of(_explanations(_missed(judged), late, topology)).distinct()
    newest_first = Window.of("row").sorted(F.col("line").part("timestamp_ms").descending(), "late")
    newest = pairs.with_column("at", F.row_number().over(newest_first)).where(F.col("at") <= MAX_LATE_NAMED)
    is_open = F.coalesce(WINDOW_END, "timestamp_ms") >= open_since_ms
    open_still = late.where(is_open & ~kept_late(released, F))
    return open_still.union(newest.select("line").parts_of("line")).distinct()


def unexplained(misses: list[GraceMiss]) -> list[Difference]:
    """Grace misses that nothing explains are violations."""
    return [
        Difference(
            kind=COMPLETENESS,
            place=f"topic {miss.sink}",
            verdict="unexplained",
            key=miss.key,
            window_start=miss.window_start,
            window_end=miss.window_end,
            expected=miss.complete,
            actual=miss.published,
            cause="no record of the late ledger, and no change of a table that came too late, would change this row",
            origin=miss.origin,
        )
        for miss in misses
        if not miss.explained
    ]


def _missed(judged: Frame, *told: str) -> Frame:
    """The missed rows, each as ``row`` too."""
    missed = judged.where(F.col(COMPLETENESS) == MISSED).select(*_ROW, *told)
    return missed.with_column("row", F.struct(*_ROW))


def _explanations(missed: Frame, ledger: Frame, topology: Topology) -> list[Frame]:
    """Each ``row`` that is missed with ``late``, what explains it, and the ``line`` of the ``ledger`` that this is."""
    origin = _place("topic", "partition", "offset")
    place = F.concat_known(origin, " +", F.col("margin_ms"), " ms")
    late = ledger.select(
        F.col("key").alias("late_key"),
        F.col(WINDOW_START).alias("late_start"),
        F.col(WINDOW_END).alias("late_end"),
        F.col("timestamp_ms").alias("late_ms"),
        origin.alias("late_origin"),
        F.struct("topic", "partition", "offset", place.alias("place")).alias("late"),
        F.struct(*ledger.columns).alias("line"),
    )
    reach_ms = _reach_ms(topology)
    start, end = F.col(WINDOW_START), F.col(WINDOW_END)
    windowless = start.is_null() | F.col("late_start").is_null()
    near = (F.col("late_start") <= end + reach_ms) & (F.col("late_end") >= start - reach_ms)
    same = (F.col("late_start") == start) & (F.col("late_end") == end)
    touches = F.when(F.col(SINK).is_in(_told_by_window(topology)), same).otherwise(near)
    above = _is_of_an_operator_above(topology)
    by_key = missed.join(late, F.col("key").equals_or_both_null(F.col("late_key")) & (windowless | touches) & above)
    places = missed.with_column("made_of", F.each_of(F.parts_of_text("origin", "+")))
    by_origin = places.join(late, (F.col("made_of") == F.col("late_origin")) & above)
    found = [one.select("row", "late", "line") for one in (by_key, by_origin)]
    rekeyed = [sink for sink in topology.written if _is_rekeyed(sink)]
    if rekeyed:
        found = [once(union_of(found))]
        during = start.is_null() | _is_between("late_ms", start - reach_ms, end + reach_ms)
        elsewhere = missed.where(F.col(SINK).is_in([sink.topic.name for sink in rekeyed]))
        elsewhere = elsewhere.join(found[0].select("row").distinct(), ["row"], "left_anti")
        found.append(elsewhere.join(late, during & above).select("row", "late", "line"))
    return found


def _is_of_an_operator_above(topology: Topology) -> Column:
    """Whether a line can be of an operator above the row's sink: of one of its windows, or of one without windows."""
    is_of = F.lit(False)
    for written in topology.written:
        nodes = above_of(written)
        windows = [node.windows for node in nodes if isinstance(node, WindowedAggregate)]
        lengths = [one.size_ms for one in windows if isinstance(one, TimeWindows)]
        varies = any(isinstance(one, SessionWindows | SlidingWindows) for one in windows)
        windowless = any(_judges(node) and not isinstance(node, WindowedAggregate) for node in nodes)
        of_window = F.lit(varies) | (F.col("late_end") - F.col("late_start")).is_in(lengths)
        is_of_sink = F.when(F.col("late_start").is_null(), F.lit(windowless)).otherwise(of_window)
        is_of = F.when(F.col(SINK) == written.topic.name, is_of_sink).otherwise(is_of)
    return is_of


def _of_lookups(missed: Frame, unread: Frame, topology: Topology) -> list[Frame]:
    """Each ``row`` that is missed with ``late``, what explains it, and the unread ``change`` that this is."""
    event = _place("event_topic", "event_partition", "event_offset")
    by_whom = F.when(F.col("offset") < 0, "a result of windows").otherwise(_place("topic", "partition", "offset"))
    told = F.when(F.col("event_offset") < 0, by_whom).otherwise(F.concat(by_whom, " read after ", event))
    changes = unread.select(
        event.alias("event"),
        "event_ms",
        F.col("key").alias("event_key"),
        F.struct("topic", "partition", "offset", told.alias("place")).alias("late"),
        F.struct(*unread.columns).alias("change"),
    )
    places = missed.with_column("made_of", F.each_of(F.parts_of_text("origin", "+")))
    by_origin = places.join(changes, F.col("made_of") == F.col("event"))
    reach_ms, start, end = _reach_ms(topology), F.col(WINDOW_START), F.col(WINDOW_END)
    during = start.is_null() | _is_between("event_ms", start - reach_ms, end + reach_ms)
    elsewhere = F.col(SINK).is_in([sink.topic.name for sink in topology.written if _is_rekeyed(sink)])
    of_key = elsewhere | F.col("key").equals_or_both_null(F.col("event_key"))
    nowhere = missed.where(F.col("origin").is_null() | F.begins_with("origin", "at "))
    return [by_origin, nowhere.join(changes, during & of_key)]


def _place(*names: str) -> Column:
    """The place that the columns of a topic, a partition and an offset say."""
    topic, partition, offset = map(F.col, names)
    return F.concat_known(topic, "-", partition, "@", offset)


def _is_between(name: str, least: Column, most: Column) -> Column:
    return (F.col(name) >= least) & (F.col(name) <= most)


def _reach_ms(topology: Topology) -> int:
    """How far outside of a row's window a late record may be that changes the row.

    A session that the record would have joined can be the gap away; one of the sliding windows begins 1 ms after it.
    """
    windows = [node.windows for node in topology.nodes() if isinstance(node, WindowedAggregate)]
    gaps_ms = [one.gap_ms for one in windows if isinstance(one, SessionWindows)]
    return max([*gaps_ms, *(1 for one in windows if isinstance(one, SlidingWindows))], default=0)


def _is_rekeyed(written: Written) -> bool:
    """Whether some operator above judged time, or looked a row up, by another key than that of the sink."""
    return any(
        isinstance(node, Deduplicate)
        or (isinstance(node, WindowedAggregate | StreamStreamJoin | StreamTableJoin) and node.key != written.key)
        or (isinstance(node, SelectKey) and any(_judges(above) for above in above_of(node)))
        for node in above_of(written)
    )


def _judges(node: Node) -> bool:
    return isinstance(node, WindowedAggregate | StreamStreamJoin | Deduplicate | InOrder) or (
        isinstance(node, StreamTableJoin) and node.history_ms is not None
    )


def missed_rows(judged: Frame, identities: Sequence[Identity], truth: Recomputed) -> Frame:
    """The missed rows of ``judged``: sink, identity, ``COMPLETE_TEXT``, ``GONE_MS``, and whether each ``IS_OPEN``.

    An audit keeps them for a backfill, as values and not as the stream's state: a row is JSON with all its fields, from
    which ``recount.backfill`` makes the very bytes that the stream would have written. No row at all: readers must see
    none.
    """
    missed = judged.where(F.col(COMPLETENESS) == MISSED)
    is_open = F.lit(True)
    for one in identities:
        is_open = F.when(F.col(SINK) == one.written.topic.name, _may_go_on(one, truth)).otherwise(is_open)
    return missed.select(SINK, *IDENTITY, COMPLETE_TEXT, GONE_MS, is_open.alias(IS_OPEN))


def _may_go_on(identity: Identity, truth: Recomputed) -> Column:
    """Whether the stream can still write a row of this identity, or holds one back."""
    if not identity.is_latest:
        return F.lit(False)
    made_by = closing_windows(identity)
    if made_by is None:
        return F.lit(True)
    node, windows = made_by
    is_open = F.lit(False)
    if node.emission.kind != "final":
        is_open = overdue_ms(windows, F.col(WINDOW_END), F.lit(truth.frontier_ms(node))) < 0
    if identity.suppression is not None:
        held = F.col("expected_at_ms") > F.lit(truth.held_after_ms[identity.suppression])
        is_open |= F.coalesce(held, F.lit(False))
    return is_open


@dataclass(frozen=True, kw_only=True)
class Beyond:
    """Records that came too late for what was carried: how many, and the ``places`` of the first of them.

    Those ``on_time``, of partitions that had been silent, are in the stream's results and not in the recompute's.
    """

    found: int
    places: tuple[str, ...]
    on_time: tuple[str, ...]

    @classmethod
    def of(cls, truth: Recomputed, complete: Recomputed) -> Beyond:
        """Return what both recomputes left out."""
        both = [
            one.ledgers["beyond"].select(*_PLACE_COLUMNS, F.lit(one is truth).alias("on_time"))
            for one in (truth, complete)
        ]
        places = once(both[0].union(both[1]).group_by(*_PLACE_COLUMNS).agg(F.any_holds("on_time").alias("on_time")))
        late_last = places.with_column("is_late", ~F.col("on_time"))
        first = late_last.sorted_by("is_late", *_PLACE_COLUMNS, at_most=MAX_LISTED).rows()
        found = len(first) if len(first) < MAX_LISTED else places.number()
        named = [(f"{row['topic']}-{row['partition']}@{row['offset']}", row["on_time"]) for row in first]
        on_time = tuple(place for place, is_on_time in named if is_on_time)
        return cls(found=found, places=tuple(place for place, _ in named), on_time=on_time)

    def require_more_log(self, *, from_the_beginning: bool) -> None:
        """Raise ``Terminal`` where an audit from the beginning has left them out too."""
        if from_the_beginning:
            raise Terminal(
                "records are older than what audits can judge",
                given=f"{', '.join(self.on_time[:10])}, on time in a partition that had been silent",
                expected="no older records than an audit behind an erasure has carried to it",
                remedy="recount reset --from now",
            )
