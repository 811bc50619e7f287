"""Rules of time: when windows close, whom an operator waits for, deduplication, tables as of a time.

Sources: "Windows", "Time", "Chains", "Deduplication" and "Joins" of docs/semantics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, assert_never

from recount.declare.expression_types import columns_of
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import (
    Filter,
    Node,
    Source,
    Stateless,
    WindowedAggregate,
    WithFields,
)
from recount.declare.operators.processing import Deduplicate, InOrder, Process
from recount.declare.operators.stateless import Peek, Repartition, Select, Through
from recount.declare.operators.tables import Suppress, TableAggregate, TableFilter, ToTable
from recount.declare.topology import Topology
from recount.declare.windows import ClosingWindows, SessionWindows, SlidingWindows, TimeWindows

_PASS = (Filter, WithFields, Select, Peek, Repartition, Through)
Way = tuple[Node, ...]
_JUDGES = (WindowedAggregate, StreamStreamJoin, Deduplicate, InOrder, Process)
_DERIVES = (WindowedAggregate, StreamStreamJoin, TableTableJoin, TableAggregate)
"""Rows that leave these are no longer at a place of the log."""


def newest_start(windows: TimeWindows, time_ms: Any) -> Any:
    """The start of the newest window that holds ``time_ms``: the last one that is not after it.

    Of a column it is one.
    """
    advance_ms, since_ms = windows.advance_ms, time_ms - windows.origin_ms
    return time_ms - (since_ms % advance_ms + advance_ms) % advance_ms


def overdue_ms(windows: ClosingWindows, end_ms: Any, clock_ms: Any) -> Any:
    """How long a window that ends at ``end_ms`` had been closed at ``clock_ms``; 0: just now, below 0: still open.

    ``clock_ms`` is a stream time (the record is late) or a frontier (the result is due). Integers give an integer,
    Spark columns a column.

    tumbling 10 s, grace 5 s:  10 s ends  |  14,999 -> -1  |  15,000 -> 0  |  15,001 -> 1
    session gap 5 s, no grace:  5 s ends  |  10,000 -> -1  |  10,001 -> 0
    """
    since_grace = clock_ms - windows.grace_ms - end_ms
    match windows:
        case TimeWindows():
            return since_grace
        case SlidingWindows():
            return since_grace - 1  # the end itself is in the window
        case SessionWindows(gap_ms=gap_ms):
            return since_grace - 1 - gap_ms  # and a record a gap later still prolongs it
    assert_never(windows)


def replaced_for_ms(node: Node) -> int | None:
    """How much further behind than it waits a final result of ``node`` can be replaced; None: it never is.

    A session that was due is taken in by a record that is at most the reach before the end of a longer one, and at most
    a gap after it. What is made of sessions in windows changes with them.
    """
    above = node
    while isinstance(above, _PASS):
        above = above.input
    if not isinstance(above, WindowedAggregate) or above.emission.kind != "final":
        return None
    before_ms = replaced_for_ms(above.input)
    if not isinstance(above.windows, SessionWindows):
        return before_ms
    return (before_ms or 0) + above.windows.gap_ms + above.windows.reach_ms


def goes_by_offset(node: Deduplicate) -> bool:
    """Whether the id is the record's own key, which chose the partition: then offsets say who came first.

    Only operators that leave key and fields alone may stand between the topic and the deduplication.
    """
    names = columns_of(node.by)
    return bool(names) and names <= _partition_key(node.input)


def _partition_key(node: Node) -> frozenset[str]:
    match node:
        case Source():
            return frozenset({node.key}) | node.topic.fields_like_the_key
        case Filter() | Peek() | Repartition() | Through():
            return _partition_key(node.input)
    return frozenset()


def waits_ms(node: Node) -> int:
    """How far behind the frontier the event time of a row can be that leaves ``node``."""
    match node:
        case WindowedAggregate(windows=TimeWindows(size_ms=size_ms, grace_ms=grace_ms)):
            return size_ms + grace_ms
        case WindowedAggregate(windows=SlidingWindows(difference_ms=difference_ms, grace_ms=grace_ms)):
            return difference_ms + grace_ms
        case WindowedAggregate(windows=SessionWindows(gap_ms=gap_ms, grace_ms=grace_ms)):
            return gap_ms + grace_ms
        case StreamStreamJoin(before_ms=before_ms, after_ms=after_ms, grace_ms=grace_ms):
            return before_ms + after_ms + grace_ms
        case StreamTableJoin(grace_ms=int(grace_ms)):
            return grace_ms
        case Suppress(limit_ms=limit_ms):
            return limit_ms
        case Deduplicate(horizon_ms=horizon_ms) if not goes_by_offset(node):
            return horizon_ms
        case InOrder(grace_ms=grace_ms):
            return grace_ms
    return 0


def topics_awaited(node: Node) -> frozenset[str]:
    """The source topics of whose partitions the slowest decides what is due in ``node``."""
    ends = [way[-1] for way in _ways((node,), _in_time)]
    return frozenset(end.topic.name for end in ends if isinstance(end, Source))


def waited_above_ms(node: Node) -> int:
    """How far behind the frontier the rows can be that come to ``node``: the way that waits longest counts."""
    return max((sum(map(waits_ms, way)) for way in _ways(_in_time(node), _in_time)), default=0)


def judges_above(node: Node) -> Iterator[tuple[Node, int]]:
    """The nearest operator on each path that judges time, and how long it and those between wait."""
    found: dict[tuple[Node, int], None] = {}
    for way in _ways(_in_time(node), _in_time):
        judging = next((number for number, above in enumerate(way) if isinstance(above, _JUDGES)), None)
        if judging is not None:
            found[way[judging], sum(map(waits_ms, way[: judging + 1]))] = None
    return iter(found)


def refusing_above(node: Node) -> Iterator[Node]:
    """The nearest operator on each way of the records themselves that refuses those without a key."""
    ways = _ways(node.inputs, _as_records)
    refusing = (next((one for one in way if isinstance(one, Deduplicate | Process)), None) for way in ways)
    return iter(dict.fromkeys(one for one in refusing if one is not None))


def comes_from_the_log(node: Node) -> bool:
    """Whether all that comes to ``node`` are records of the log as it is: nobody above judges or changes one."""
    above = node.inputs
    return all(isinstance(one, Source) or (isinstance(one, Stateless) and comes_from_the_log(one)) for one in above)


def is_held_back(node: Node) -> bool:
    """Whether records come to ``node`` that an operator above kept until time had passed."""
    return any(holds_back(one) for way in _ways(node.inputs, _as_records) for one in way)


def holds_back(node: Node) -> bool:
    """Whether ``node`` keeps records until time has passed.

    So does a lookup with a grace, a limit, and a first or an order by event time.
    """
    match node:
        case StreamTableJoin():
            return node.grace_ms is not None
        case Deduplicate():
            return not goes_by_offset(node)
    return isinstance(node, Suppress | InOrder)


def _ways(starts: tuple[Node, ...], further: Callable[[Node], tuple[Node, ...]]) -> list[Way]:
    """All paths that begin at one of ``starts`` and go up by ``further``."""
    ended: list[Way] = []
    going: list[Way] = [(start,) for start in starts]
    while going:
        way = going.pop()
        above = further(way[-1])
        if above:
            going += [(*way, one) for one in above]
        else:
            ended.append(way)
    return ended


def _in_time(node: Node) -> tuple[Node, ...]:
    """A lookup without a grace waits for no table."""
    if isinstance(node, StreamTableJoin) and node.grace_ms is None:
        return (node.left,)
    return node.inputs


def _as_records(node: Node) -> tuple[Node, ...]:
    """The records of the stream leave a lookup."""
    if isinstance(node, _DERIVES):
        return ()
    return (node.left,) if isinstance(node, StreamTableJoin) else node.inputs


def has_versions(table: Node) -> bool:
    """Whether ``table`` was declared versioned, and what follows looks at each version by itself."""
    while isinstance(table, WithFields | Select | TableFilter):
        table = table.input
    return isinstance(table, ToTable) and table.versioned


def longest_open_ms(topology: Topology) -> int:
    """How long after its end a window can still change; a session also while those before it can."""
    return max(map(_open_ms, _closing_windows(topology)), default=0)


def longest_ms(topology: Topology) -> int:
    """How long before its end a window can begin."""
    return max(map(_lasts_ms, _closing_windows(topology)), default=0)


def _closing_windows(topology: Topology) -> list[ClosingWindows]:
    windows = [node.windows for node in topology.nodes() if isinstance(node, WindowedAggregate)]
    return [one for one in windows if isinstance(one, ClosingWindows)]


def _lasts_ms(windows: ClosingWindows) -> int:
    match windows:
        case SessionWindows():
            return windows.reach_ms
        case SlidingWindows():
            return windows.difference_ms
        case _:
            return windows.size_ms


def _open_ms(windows: ClosingWindows) -> int:
    longest_ms = windows.max_duration_ms or 0 if isinstance(windows, SessionWindows) else 0
    return int(longest_ms - 3 * overdue_ms(windows, 0, 0))
