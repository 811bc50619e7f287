"""Event time of operators by their declaration: what they wait for, the reading order of topics, revised rows.

    orders ── looks up ──> customers ── looks up ──> regions

Layers: regions, then customers, then orders. A batch reads every layer but the last to its end, as of the moment in
which the batch is planned; so a lookup as of the event's time knows every change that was in the log then.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import Node, Source, WindowedAggregate
from recount.declare.operators.processing import Deduplicate, InOrder, Process
from recount.declare.operators.tables import Suppress, TableAggregate
from recount.declare.windows import GlobalWindow, SessionWindows, TimeWindows
from recount.runtime.errors import require
from recount.runtime.times import told_time

_JUDGES_TIME = (WindowedAggregate, StreamStreamJoin, Deduplicate, InOrder, Process)
"""Operators that let results go by their frontier, or refuse what comes too late."""
Layers = tuple[tuple[str, ...], ...]
"""The source topics, those that are read first in the first layer."""
_Before = Mapping[str, set[str]]
"""By topic those that are read after it."""


def waits_for(node: Node) -> tuple[Node, ...]:
    """The inputs by whose time an operator goes; a table only where its join has a grace."""
    return (node.left,) if isinstance(node, StreamTableJoin) and node.grace_ms is None else node.inputs


def topics_of(node: Node) -> frozenset[str]:
    """The source topics whose time an operator waits for."""
    if isinstance(node, Source):
        return frozenset({node.topic.name})
    return frozenset().union(*(topics_of(above) for above in waits_for(node)))


def delay_above_ms(node: Node) -> int:
    """How far behind the frontier the records can be that reach an operator: what the operators above wait for."""
    return max((delay_above_ms(above) + getattr(above, "delay_ms", 0) for above in waits_for(node)), default=0)


def judges_above(node: Node) -> Iterator[tuple[Node, int]]:
    """On each path up from an operator the first that judges time, and how much it and those between them wait for."""
    for above in waits_for(node):
        delay_ms = getattr(above, "delay_ms", 0)
        if isinstance(above, _JUDGES_TIME):
            yield above, delay_ms
        else:
            yield from ((judge, delay_ms + further_ms) for judge, further_ms in judges_above(above))


def records_from(node: Node) -> tuple[Node, ...]:
    """The inputs whose records leave an operator again, each at its own place in the log; all others are derived."""
    if isinstance(node, WindowedAggregate | StreamStreamJoin | TableTableJoin | TableAggregate):
        return ()
    return (node.left,) if isinstance(node, StreamTableJoin) else node.inputs


def refusing_above(node: Node) -> Iterator[Node]:
    """On each path on which records come to an operator the nearest above that refuses those without a key."""
    for above in node.inputs:
        yield from _refusing(above)


def _refusing(node: Node) -> Iterator[Node]:
    if isinstance(node, Deduplicate | Process):
        yield node
    else:
        for above in records_from(node):
            yield from _refusing(above)


def holds_back(node: Node) -> bool:
    """Whether an operator lets records go only when time has passed: others of their partition may overtake them."""
    if isinstance(node, StreamTableJoin):
        return node.grace_ms is not None
    return isinstance(node, Suppress | InOrder) or (isinstance(node, Deduplicate) and not node.partitioned)


def is_held_back(node: Node) -> bool:
    """Whether records come to an operator that one above has held back."""
    return any(map(_comes_late, node.inputs))


def _comes_late(node: Node) -> bool:
    return holds_back(node) or any(map(_comes_late, records_from(node)))


def reading_layers(nodes: Iterable[Node]) -> Layers:
    """The layers of the topics that ``nodes`` read; one, where no lookup is as of the event's time.

    A lookup with a grace waits for the table's time, and so can do without an order where none is possible. Raises
    ``InvalidDeclaration`` where a topic would have to be read before itself.
    """
    found = list(nodes)
    lookups = [node for node in found if isinstance(node, StreamTableJoin) and node.as_of == "event"]
    after: dict[str, set[str]] = {node.topic.name: set() for node in found if isinstance(node, Source)}
    for lookup in sorted(lookups, key=lambda one: one.grace_ms is not None):
        events = records_of(lookup.left)
        for table in sorted(records_of(lookup.right)):
            circular = {event for event in events if table == event or table in _reached(after, event)}
            require(
                lookup.grace_ms is not None or not circular,
                "table-that-waits-for-itself",
                given=f"read as the table of {', '.join(sorted(circular))}, which is read before it, or is the same",
                lookup=lookup,
                table=table,
            )
            after[table] |= events - circular
    return _layers(after)


def require_versions(nodes: Iterable[Node]) -> None:
    """Refuse a lookup as of the event's time in a table whose changes do not come at once from single records."""
    for node in nodes:
        if isinstance(node, StreamTableJoin) and node.as_of == "event" and node.grace_ms is None:
            require(
                changes_at_once(node.right),
                "table-without-a-topic",
                given=f"{node.right}, whose changes are made of several records, or leave when time has passed",
                node=node,
            )


def changes_at_once(node: Node) -> bool:
    """Whether each row leaves ``node`` in the batch that reads the one record behind it."""
    match node:
        case WindowedAggregate():
            return not node.has_bounds and node.emission.kind == "each record" and changes_at_once(node.input)
        case Deduplicate():
            return node.partitioned and changes_at_once(node.input)
        case Process():
            return node.on_timer is None and changes_at_once(node.input)
        case StreamTableJoin():
            return node.grace_ms is None and changes_at_once(node.left)
        case StreamStreamJoin() | TableTableJoin() | TableAggregate() | Suppress() | InOrder():
            return False
    return all(changes_at_once(above) for above in node.inputs)


def records_of(node: Node) -> frozenset[str]:
    """The topics whose records reach ``node``; of a lookup those of the stream, not of the table."""
    if isinstance(node, Source):
        return frozenset({node.topic.name})
    above: Sequence[Node] = (node.left,) if isinstance(node, StreamTableJoin) else node.inputs
    return frozenset().union(*map(records_of, above))


def lookup_name(node: StreamTableJoin) -> str:
    """Which lookup it is, for people: its kind, and the topics of the table."""
    return f"{node.kind} lookup in {', '.join(sorted(records_of(node.right)))}"


class Reached(Protocol):
    """A partition of ``topic`` and how far its event time has come."""

    @property
    def topic(self) -> str: ...

    @property
    def stream_time_ms(self) -> int | None:
        """Its largest event time, None before the first."""


def newer_tables(nodes: Iterable[Node], partitions: Iterable[Reached]) -> dict[str, str]:
    """Return a sentence by ``lookup_name`` for a table whose newest record is newer than any that looks rows up in it.

    Only of topics without an event time: their records have the time at which they were written.
    """
    found, newest = list(nodes), dict[str, int]()
    for part in partitions:
        if part.stream_time_ms is not None:
            newest[part.topic] = max(newest.get(part.topic, 0), part.stream_time_ms)
    timeless = {one.topic.name for one in found if isinstance(one, Source) and one.topic.event_time is None}
    said = {}
    for lookup in (one for one in found if isinstance(one, StreamTableJoin) and one.as_of == "event"):
        table = max(records_of(lookup.right) & timeless & newest.keys(), key=newest.__getitem__, default=None)
        asking_ms = max((newest[topic] for topic in records_of(lookup.left) if topic in newest), default=None)
        if table is not None and asking_ms is not None and newest[table] > asking_ms:
            said[lookup_name(lookup)] = (
                f"{table} declares no event_time, so its rows count from when they were written to Kafka, the last at"
                f" {told_time(newest[table])}, and the records that ask for them are of {told_time(asking_ms)} or"
                " before: declare an event_time, or write the rows with the time from which they hold"
            )
    return said


def _reached(after: _Before, topic: str) -> set[str]:
    """All topics that are read after ``topic``."""
    found: set[str] = set()
    waiting = [topic]
    while waiting:
        new = after[waiting.pop()] - found
        found |= new
        waiting.extend(new)
    return found


def _layers(after: _Before) -> Layers:
    heights: dict[str, int] = {}

    def height(topic: str) -> int:
        """How many layers are read after the topic's."""
        if topic not in heights:
            heights[topic] = 1 + max(map(height, after[topic]), default=-1)
        return heights[topic]

    highest = max(map(height, after), default=0)
    return tuple(tuple(topic for topic in after if heights.get(topic, 0) == level) for level in range(highest, -1, -1))


def can_be_revised(node: Node) -> bool:
    """Whether a row without a place in the log that leaves ``node`` can replace an earlier one of its order."""
    match node:
        case WindowedAggregate() | TableAggregate() | TableTableJoin():
            return True
        case Source() | StreamStreamJoin():
            return False
        case StreamTableJoin(left=left):
            return can_be_revised(left)
    return any(can_be_revised(above) for above in node.inputs)


def tries_folds(node: WindowedAggregate) -> bool:
    """Whether the folds of ``node`` are tried with each record as it is read, so that one that raises is set aside.

    Not where a window's records are known only later (sliding, last n, sessions that are cut), nor where rows were held
    back or can be replaced: docs/semantics.md, "Functions that raise".
    """
    if all(aggregate.fold is None for aggregate in node.aggregates.values()):
        return False
    if is_held_back(node) or can_be_revised(node.input):
        return False
    match node.windows:
        case TimeWindows() | GlobalWindow():
            return True
        case SessionWindows(max_duration_ms=None):
            return node.emission.kind != "each record"
    return False
