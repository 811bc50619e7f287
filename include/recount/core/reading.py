"""In which order the topics of a topology are read: tables before the records that look rows up in them.

    orders ── looks up ──> customers ── looks up ──> regions

Layers: regions, then customers, then orders. A batch reads every layer but the last to its end, as of the moment in
which the batch is planned; so a lookup as of the event's time knows every change that lay in the log then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from recount.core.changelogs import Suppress, TableAggregate
from recount.core.errors import require
from recount.core.instants import told_time
from recount.core.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.core.nodes import Node, Source, WindowedAggregate
from recount.core.processing import Deduplicate, InOrder, Process

Layers = tuple[tuple[str, ...], ...]
"""The source topics, those that are read first in the first layer."""
_Before = Mapping[str, set[str]]
"""By topic those that are read after it."""


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
                f"{lookup}: the topic {table}",
                given=f"read as the table of {', '.join(sorted(circular))}, which is read before it, or is the same",
                expected="a table whose topic can be read to its end before the records that look rows up in it",
                remedy="declare a grace, so that records wait for the table's time, or as_of='arrival'",
            )
            after[table] |= events - circular
    return _layers(after)


def require_versions(nodes: Iterable[Node]) -> None:
    """Refuse a lookup as of the event's time in a table whose changes do not come at once from single records."""
    for node in nodes:
        if isinstance(node, StreamTableJoin) and node.as_of == "event" and node.grace_ms is None:
            require(
                changes_at_once(node.right),
                f"{node}: the table",
                given=f"{node.right}, whose changes are made of several records, or leave when time has passed",
                expected="a topic read as a table, or aggregated for each record; filters and maps may stand between",
                remedy="write the table to a topic and read it from there, or declare as_of='arrival'",
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
    def topic(self) -> str:
        """Whose it is."""

    @property
    def stream_time_ms(self) -> int | None:
        """Its largest event time, None before the first."""


def newer_tables(nodes: Iterable[Node], partitions: Iterable[Reached]) -> dict[str, str]:
    """By ``lookup_name`` what is said of a table whose newest record is newer than any record that looks rows up in it.

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
