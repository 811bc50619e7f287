"""Operators that judge records by a grace, and how much their grace was too short.

Their rows in the late ledger say how much longer a grace would have been enough. A longer grace is estimated: the
topology is declared a second time with it, and nothing else changes.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import polars as pl

from recount.declare.columns import STREAM_TIME, TIMESTAMP
from recount.declare.operators.event_time import delay_above_ms, holds_back, records_from
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START, Node, Source, WindowedAggregate
from recount.declare.operators.processing import Deduplicate, InOrder
from recount.declare.topology import Topology
from recount.declare.windows import SessionWindows, SlidingWindows, TimeWindows

_INPUTS = {"input", "inputs", "left", "right"}
JUDGE, SHORT_BY = "__judge", "__short_by_ms"
"""Which of the judges made a row of the late ledger, by its place among them (null: several could have, or none), and
the smallest addition to its grace as it is now with which there would be no such row."""
RECORD = ["topic", "partition", "offset"]
RESULT = ["key", WINDOW_START, WINDOW_END]


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
    def notes(self) -> list[str]:
        """Return what the figures do not say."""
        said = {
            "at least so many: a record that is let in can prolong the session by which others are judged": isinstance(
                getattr(self.nodes[0], "windows", None), SessionWindows
            ),
            "which results lack these records the late ledger does not say": not self.makes_results,
            "what is let in here is judged again by an operator below, and can be late there": any(
                _judges(node) for node in self._below if node not in self.nodes
            ),
            "the late ledger does not tell these operators apart: counted and lengthened together": len(self.nodes) > 1,
        }
        return [note for note, holds in said.items() if holds]


def judges_of(topology: Topology) -> list[Judge]:
    """Return the operators that enter rows in the late ledger, inputs first; those with rows alike are one judge."""
    alike: dict[tuple[type[Node], int | None, frozenset[int]], list[tuple[int, Node]]] = {}
    for number, node in enumerate(topology.nodes(), start=1):
        if _judges(node):
            alike.setdefault((type(node), *_late_when(node)), []).append((number, node))
    found = []
    for (_, length_ms, bounds_ms), same in alike.items():
        numbers, nodes = zip(*same, strict=True)
        found.append(Judge(topology=topology, nodes=nodes, numbers=numbers, length_ms=length_ms, bounds_ms=bounds_ms))
    return found


def _judges(node: Node) -> bool:
    """Whether ``node`` judges records of the log; what was derived from them is never late."""
    _, bounds_ms = _late_when(node)
    return bool(bounds_ms) and any(map(_brings_records, node.inputs))


def _brings_records(node: Node) -> bool:
    return isinstance(node, Source) or any(map(_brings_records, records_from(node)))


def _late_when(node: Node) -> tuple[int | None, frozenset[int]]:
    """The length of its windows, and how far stream time is past their end or the record when that is late."""
    match node:
        case WindowedAggregate(windows=TimeWindows() | SlidingWindows() | SessionWindows() as windows):
            length_ms = getattr(windows, "size_ms", getattr(windows, "difference_ms", None))
            return length_ms, frozenset({windows.closes_ms(0)})
        case StreamStreamJoin(before_ms=before_ms, after_ms=after_ms, grace_ms=grace_ms):
            return None, frozenset({before_ms + grace_ms + 1, after_ms + grace_ms + 1})
        case (
            InOrder(grace_ms=behind_ms) | Deduplicate(horizon_ms=behind_ms) | StreamTableJoin(history_ms=int(behind_ms))
        ):
            return None, frozenset({behind_ms + 1})
    return None, frozenset()


def grace_of(node: Node) -> int | None:
    """The grace by which ``node`` judges records; None where it has none: for that of a lookup they wait."""
    grace_ms: int | None = getattr(getattr(node, "windows", node), "grace_ms", None)
    return None if isinstance(node, StreamTableJoin) else grace_ms


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
                grace_ms, windows = grace_of(node), getattr(node, "windows", None)
                assert grace_ms is not None, f"{node} judges nothing by a grace"
                grace = {"grace_ms": grace_ms + added_ms}
                changed |= grace if windows is None else {"windows": replace(windows, **grace)}
            made[node] = replace(node, **changed)
        return made[node]

    return replace(topology, sinks=list(map(longer, topology.sinks)), actions=list(map(longer, topology.actions)))


def attributed(late: pl.LazyFrame, judges: Sequence[Judge]) -> pl.LazyFrame:
    """The rows ``late`` of the late ledger with ``JUDGE`` and ``SHORT_BY``.

    Rows do not name the operator. Where all that enter rows look alike they are theirs, also if an upgrade has changed
    the grace since; else the row's window and margin tell whose it is. Rows of results were judged by the grace of
    their time; those that the grace of now would not have made are left out.
    """
    # how far the stream time is past the window's end, or the record, at the first moment at which it is late
    late_from = pl.col(STREAM_TIME) - pl.coalesce(WINDOW_END, TIMESTAMP) - pl.col("margin_ms")
    length_ms, has_window = pl.col(WINDOW_END) - pl.col(WINDOW_START), pl.col(WINDOW_END).is_not_null()
    candidates = []
    for place, judge in enumerate(judges):
        is_its = (has_window == isinstance(judge.nodes[0], WindowedAggregate)) & late_from.is_in(
            sorted(judge.bounds_ms)
        )
        if judge.length_ms is not None:
            is_its &= length_ms.eq_missing(judge.length_ms)
        candidates.append(pl.when(pl.lit(len(judges) == 1) | is_its).then(pl.lit(place, pl.Int32)))
    places = pl.concat_list(pl.lit(None, pl.Int32), *candidates).list.drop_nulls()
    whose = pl.when(places.list.len() == 1).then(places.list.first())
    bounds = {place: min(judge.bounds_ms) for place, judge in enumerate(judges) if judge.makes_results}
    bound_ms = pl.col(JUDGE).replace_strict(bounds, default=None, return_dtype=pl.Int64)
    short_by = pl.col("margin_ms") + 1 + (late_from - bound_ms).fill_null(0)
    return late.with_columns(whose.alias(JUDGE)).with_columns(short_by.alias(SHORT_BY)).filter(pl.col(SHORT_BY) > 0)


def shortfalls(rows: pl.LazyFrame, place: int, judge: Judge) -> tuple[pl.Series, pl.Series | None]:
    """The addition that would have been enough for each record that was late for the judge at ``place``, and result.

    Milliseconds to add to the grace, in rising order; ``rows`` are ``attributed``. A result (key and window) needs as
    much as the latest of the late records that it lacks. None where the late ledger does not say which results do.
    """
    mine = rows.filter(pl.col(JUDGE) == place)
    records, results = pl.collect_all(
        [mine.group_by(group).agg(pl.col(SHORT_BY).max()).select(pl.col(SHORT_BY).sort()) for group in (RECORD, RESULT)]
    )
    return records[SHORT_BY], results[SHORT_BY] if judge.makes_results else None


def saved(short_by: pl.Series, added_ms: int) -> int:
    """How many of them ``added_ms`` more grace would have saved."""
    return int(short_by.search_sorted(added_ms, side="right"))
