"""Operators that judge records by a grace, how much their grace was too short, and the additions recommended.

Their rows in the late ledger say how much longer a grace would have been enough. A longer grace is estimated: the
topology is declared a second time with it, and nothing else changes.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from typing import Any

import polars as pl

from recount.declare.columns import STREAM_TIME, TIMESTAMP
from recount.declare.operators.event_time import delay_above_ms, holds_back, records_from
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START, Node, Source, WindowedAggregate
from recount.declare.operators.processing import Deduplicate, InOrder
from recount.declare.topology import Topology
from recount.declare.windows import SessionWindows, SlidingWindows, TimeWindows
from recount.runtime.times import readable

_INPUTS = {"input", "inputs", "left", "right"}
JUDGE, SHORT_BY = "__judge", "__short_by_ms"
"""Which of the judges made a row of the late ledger, by its place among them (null: several could have, or none), and
the smallest addition to its grace as it is now with which there would be no such row."""
RECORD = ["topic", "partition", "offset"]
RESULT = ["key", WINDOW_START, WINDOW_END]
_SHARES = (0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.0)
_S, _MIN, _H, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_ROUND = [
    *(number * unit for unit in (1, 10, 100) for number in (1, 2, 5)),
    *(number * _S for number in (1, 2, 3, 5, 10, 15, 20, 30, 45)),
    *(number * _MIN for number in (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 45)),
    *(number * _H for number in (1, 2, 3, 4, 6, 8, 12, 18)),
    _DAY,
]


@dataclass(frozen=True, kw_only=True)
class Judge:
    """The operators ``nodes`` of ``topology``, whose rows in the late ledger look alike: mostly it is one.

    ``numbers`` are those of ``recount describe``. Their rows have windows of ``length_ms`` (None: of any length), or
    none at all. At the first moment at which a record is late, stream time is past the end of the window, or without
    one past the record, by one of ``bounds_ms``.
    """

    topology: Topology
    nodes: tuple[Node, ...]
    numbers: tuple[int, ...]
    length_ms: int | None
    bounds_ms: frozenset[int]

    @property
    def grace_ms(self) -> int | None:
        """Its grace; None where another time decides: the horizon of a deduplication, the history of a lookup."""
        return grace_of(self.nodes[0])

    @property
    def makes_results(self) -> bool:
        """Whether its rows say which result of which key and window a late record is missing from.

        Those of sessions do not, for late records would have changed the bounds; nor do those of sliding windows, of
        which a late record would have begun others.
        """
        return isinstance(getattr(self.nodes[0], "windows", None), TimeWindows)

    @property
    def is_of_sessions(self) -> bool:
        """Whether a record that is let in can let others in: it can prolong the session that they are judged by."""
        return isinstance(getattr(self.nodes[0], "windows", None), SessionWindows)

    @cached_property
    def _below(self) -> list[Node]:
        """The operators themselves and all that their rows come to."""
        readers, found = self.topology.readers(), list(self.nodes)
        for node in found:
            found += [reader for reader, _ in readers[node] if reader not in found]
        return found

    @property
    def waits_ms(self) -> int:
        """How far behind the frontier results below it are now, at most."""
        return max(delay_above_ms(node) + getattr(node, "delay_ms", 0) for node in self._below)

    @property
    def delays(self) -> bool:
        """Whether a longer grace makes results later: they, or what is below them, wait until time has passed.

        Updates that leave with every batch or record do not wait, nor do the pairs of an inner join.
        """
        return any(
            (isinstance(node, WindowedAggregate) and node.emission.kind == "final")
            or (isinstance(node, StreamStreamJoin) and node.kind != "inner")
            or holds_back(node)
            for node in self._below
        )

    @property
    def judged_below(self) -> bool:
        """Whether a record that is let in is judged once more, by an operator below."""
        return any(_judges(node) for node in self._below if node not in self.nodes)


def judges_of(topology: Topology) -> list[Judge]:
    """Return the operators that enter rows in the late ledger, inputs first; those with rows alike are one judge."""
    alike: dict[tuple[type[Node], int | None, frozenset[int]], list[tuple[int, Node]]] = {}
    for number, node in enumerate(topology.nodes(), start=1):
        if _judges(node):
            alike.setdefault((type(node), *_late_when(node)), []).append((number, node))
    return [
        Judge(
            topology=topology,
            nodes=tuple(node for _, node in found),
            numbers=tuple(number for number, _ in found),
            length_ms=length_ms,
            bounds_ms=bounds_ms,
        )
        for (_, length_ms, bounds_ms), found in alike.items()
    ]


def _judges(node: Node) -> bool:
    """Whether ``node`` judges records of the log; what was derived from them is never late."""
    _, bounds_ms = _late_when(node)
    return bool(bounds_ms) and any(map(_brings_records, node.inputs))


def _brings_records(node: Node) -> bool:
    return isinstance(node, Source) or any(map(_brings_records, records_from(node)))


def _late_when(node: Node) -> tuple[int | None, frozenset[int]]:
    """The length of its windows, and how far stream time is past their end or the record when that is late."""
    match node:
        case (
            WindowedAggregate(windows=TimeWindows(size_ms=length_ms) as windows)
            | WindowedAggregate(windows=SlidingWindows(difference_ms=length_ms) as windows)
        ):
            return length_ms, frozenset({windows.closes_ms(0)})
        case WindowedAggregate(windows=SessionWindows() as windows):
            return None, frozenset({windows.closes_ms(0)})
        case StreamStreamJoin(before_ms=before_ms, after_ms=after_ms, grace_ms=grace_ms):
            return None, frozenset({before_ms + grace_ms + 1, after_ms + grace_ms + 1})
        case (
            InOrder(grace_ms=behind_ms) | Deduplicate(horizon_ms=behind_ms) | StreamTableJoin(history_ms=int(behind_ms))
        ):
            return None, frozenset({behind_ms + 1})
    return None, frozenset()


def grace_of(node: Node) -> int | None:
    """The grace by which ``node`` judges records; None where it has none."""
    match node:
        case WindowedAggregate(windows=TimeWindows() | SlidingWindows() | SessionWindows() as windows):
            return windows.grace_ms
        case StreamStreamJoin() | InOrder():
            return node.grace_ms
    return None


def lengthened(topology: Topology, nodes: Collection[Node], added_ms: int) -> Topology:
    """``topology`` with ``added_ms`` more grace in each of ``nodes``, which have one."""
    made: dict[Node, Node] = {}

    def longer(node: Node) -> Any:
        if node not in made:
            changed: dict[str, Any] = {}
            for name in _INPUTS & {field.name for field in fields(node)}:
                above = getattr(node, name)
                changed[name] = tuple(map(longer, above)) if isinstance(above, tuple) else longer(above)
            if node in nodes:
                grace_ms = grace_of(node)
                assert grace_ms is not None, f"{node} judges nothing by a grace"
                grace = {"grace_ms": grace_ms + added_ms}
                windows = getattr(node, "windows", None)
                changed |= grace if windows is None else {"windows": replace(windows, **grace)}
            made[node] = replace(node, **changed)
        return made[node]

    return replace(
        topology, sinks=[longer(sink) for sink in topology.sinks], actions=[longer(end) for end in topology.actions]
    )


@dataclass(frozen=True, kw_only=True)
class Shortfalls:
    """For each late record, and each result (key and window) that lacks late records, what would have been enough.

    Milliseconds to add to the grace, in rising order; a result needs as much as the latest of its late records.
    ``results`` is None where the late ledger does not say which they are.
    """

    records: pl.Series
    results: pl.Series | None

    @property
    def counted(self) -> pl.Series:
        """Shortfalls of results, where they are known, else of records."""
        return self.records if self.results is None else self.results


def saved(short_by: pl.Series, added_ms: int) -> int:
    """How many of them ``added_ms`` more grace would have saved."""
    return int(short_by.search_sorted(added_ms, side="right"))


def attributed(late: pl.LazyFrame, judges: Sequence[Judge]) -> pl.LazyFrame:
    """The rows ``late`` of the late ledger with ``JUDGE`` and ``SHORT_BY``.

    Rows do not name the operator. Where all that enter rows look alike they are theirs, also if an upgrade has changed
    the grace since; else the row's window and margin tell whose it is. Rows that the grace of now would not have made
    are left out.
    """
    is_whose = [pl.lit(value=True)] if len(judges) == 1 else list(map(_is_of, judges))
    candidates = pl.sum_horizontal(pl.lit(0), *(one.cast(pl.Int32) for one in is_whose))
    whose = pl.coalesce(
        pl.lit(None, pl.Int32), *(pl.when(one).then(pl.lit(place)) for place, one in enumerate(is_whose))
    )
    named = late.with_columns(pl.when(candidates == 1).then(whose).cast(pl.Int32).alias(JUDGE))
    short_by = reduce(
        lambda otherwise, one: pl.when(pl.col(JUDGE) == one[0]).then(_short_by(one[1])).otherwise(otherwise),
        enumerate(judges),
        pl.col("margin_ms") + 1,
    )
    return named.with_columns(short_by.cast(pl.Int64).alias(SHORT_BY)).filter(pl.col(SHORT_BY) > 0)


def shortfalls(rows: pl.LazyFrame, place: int, judge: Judge) -> Shortfalls:
    """Return the shortfalls of ``judge``, the one at ``place`` in the ``attributed`` rows."""
    mine = rows.filter(pl.col(JUDGE) == place)
    groups = [RECORD, *([RESULT] if judge.makes_results else [])]
    found = pl.collect_all(
        [mine.group_by(group).agg(pl.col(SHORT_BY).max()).select(pl.col(SHORT_BY).sort()) for group in groups]
    )
    records, *results = (frame[SHORT_BY] for frame in found)
    return Shortfalls(records=records, results=results[0] if results else None)


def _late_from() -> pl.Expr:
    """How far the stream time is past the window's end, or the record, at the first moment at which it is late."""
    return pl.col(STREAM_TIME) - pl.coalesce(WINDOW_END, TIMESTAMP) - pl.col("margin_ms")


def _is_of(judge: Judge) -> pl.Expr:
    has_window = isinstance(judge.nodes[0], WindowedAggregate)
    matches = [pl.col(WINDOW_END).is_not_null() == has_window, _late_from().is_in(sorted(judge.bounds_ms))]
    if judge.length_ms is not None:
        matches.append((pl.col(WINDOW_END) - pl.col(WINDOW_START)).eq_missing(judge.length_ms))
    return pl.all_horizontal(matches)


def _short_by(judge: Judge) -> pl.Expr:
    """The rows of a single aggregation were judged by the grace of their time, which an upgrade can have changed."""
    of_then = pl.col("margin_ms") + 1
    if not judge.makes_results:
        return of_then
    [bound_ms] = judge.bounds_ms
    return of_then + _late_from() - bound_ms


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """``added_ms`` more grace, 0: the grace stays; ``reason`` says why."""

    added_ms: int
    reason: str


def recommended(
    short_by: pl.Series, steps: Sequence[int], *, what: str, waits_ms: int, grace_ms: int
) -> Recommendation:
    """The longest of ``steps`` worth its delay: it does not more than double ``waits_ms``, and saves half at least.

    ``short_by`` is of each of ``what`` (``results``, ``records``) what the grace ``grace_ms`` was short by, rising.
    ``waits_ms`` is how long results wait for late records now. What a step does not save is left to backfills.

    Windows of 5 min with a grace of 5 s, 90 of 100 results short by at most 2 min, the others by 3 h: + 2 min.
    """
    count = len(short_by)
    if not count:
        return Recommendation(added_ms=0, reason="no record was late: nothing asks for a longer grace")
    worth = [step for step in steps if step <= waits_ms]
    # of steps that save the same the shortest
    best = max(worth, key=lambda step: (saved(short_by, step), -step), default=0)
    kept = saved(short_by, best)
    far = f"up to {readable(rounded_up(short_by[-1]))} more"
    if 2 * kept < count:
        waits = readable(waits_ms)
        return Recommendation(
            added_ms=0,
            reason=f"{count - kept:,} of {count:,} {what} need more than {waits} more, {far}: that would more than"
            f" double the {waits} for which results wait now; leave them to backfills",
        )
    rest = f"the other {count - kept:,} need {far}: leave them to backfills" if kept < count else "none is left"
    saves = f"saves {kept:,} of {count:,} {what} ({share(kept, count)})"
    return Recommendation(added_ms=best, reason=f"a grace of {readable(grace_ms + best)} {saves}; {rest}")


def share(part: int, whole: int) -> str:
    """In per cent, rounded down: 999 of 1,000 are 99 %, not all."""
    return f"{100 * part // whole} %"


def steps_of_grace(short_by_ms: Sequence[int], limit_ms: int) -> list[int]:
    """Additions, rising, that save 10, 25, 50, 75, 90, 95, 99 and 100 % at least; ``short_by_ms`` rises.

    Each is rounded up to what a person would write: 1,001 ms and 117,000 ms to 2 s and 2 min. ``limit_ms`` is one of
    them where it saves some that the steps below it do not.
    """
    count = len(short_by_ms)
    if not count:
        return []
    steps = {rounded_up(short_by_ms[math.ceil(share * count) - 1]) for share in _SHARES}
    below = max((step for step in steps if step <= limit_ms), default=0)
    if bisect_right(short_by_ms, below) < bisect_right(short_by_ms, limit_ms):
        steps.add(limit_ms)
    return sorted(steps)


def rounded_up(ms: int) -> int:
    """The next round duration: of days whole ones."""
    place = bisect_left(_ROUND, ms)
    return _ROUND[place] if place < len(_ROUND) else -(-ms // _DAY) * _DAY
