"""Whose time an operator waits for, and how long: "Time" and "Chains" of docs/semantics.md, told from the ways up.

A way is every operator that a row could have come through, from just above an operator up to a source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from recount.core.changelogs import Suppress, TableAggregate
from recount.core.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.core.nodes import Node, Source, Stateless, WindowedAggregate
from recount.core.processing import Deduplicate, InOrder, Process
from recount.core.windows import SessionWindows, SlidingWindows, TimeWindows
from recount.recompute.rules.deduplicating import goes_by_offset

Way = tuple[Node, ...]
_JUDGES = (WindowedAggregate, StreamStreamJoin, Deduplicate, InOrder, Process)
_DERIVES = (WindowedAggregate, StreamStreamJoin, TableTableJoin, TableAggregate)
"""What leaves these lies no longer at a place of the log."""


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
    """The nearest operator on each way that judges time, and how long it and what lies between wait."""
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
    """All ways that begin at one of ``starts`` and go up as ``further`` says."""
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
    """What leaves a lookup are the records of its stream."""
    if isinstance(node, _DERIVES):
        return ()
    return (node.left,) if isinstance(node, StreamTableJoin) else node.inputs
