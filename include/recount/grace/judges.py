"""Which operators judge records of the log by a grace, and how their rows in the late ledger are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from recount.core.event_time import delay_above_ms, holds_back, records_from
from recount.core.joins import StreamStreamJoin, StreamTableJoin
from recount.core.nodes import Node, Source, WindowedAggregate
from recount.core.processing import Deduplicate, InOrder
from recount.core.topology import Topology
from recount.core.windows import GlobalWindow, LastN, SessionWindows, TimeWindows


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What all rows of an operator of ``kind`` in the late ledger have in common.

    Windows of ``length_ms`` (None: of any length), or none at all; and how far the stream time had to be past the end
    of the window, or without one past the record, for the first moment at which it was late: one of ``bounds_ms``.
    """

    kind: type[Node]
    has_window: bool
    length_ms: int | None
    bounds_ms: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class Judge:
    """The operators ``nodes`` of ``topology``, whose rows in the late ledger look alike: mostly it is one.

    ``numbers`` are those of ``recount describe``.
    """

    topology: Topology
    signature: Signature
    nodes: tuple[Node, ...]
    numbers: tuple[int, ...]

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
        node = self.nodes[0]
        return isinstance(node, WindowedAggregate) and isinstance(node.windows, TimeWindows)

    @property
    def is_of_sessions(self) -> bool:
        """Whether a record that is let in can let others in: it can prolong the session that they are judged by."""
        node = self.nodes[0]
        return isinstance(node, WindowedAggregate) and isinstance(node.windows, SessionWindows)

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
        return any(_waits(node) for node in self._below)

    @property
    def judged_below(self) -> bool:
        """Whether a record that is let in is judged once more, by an operator below."""
        return any(judges(node) for node in self._below if node not in self.nodes)


def grace_of(node: Node) -> int | None:
    """The grace by which ``node`` judges records; None where it has none."""
    match node:
        case WindowedAggregate(windows=windows) if not isinstance(windows, GlobalWindow | LastN):
            return windows.grace_ms
        case StreamStreamJoin() | InOrder():
            return node.grace_ms
    return None


def judges_of(topology: Topology) -> list[Judge]:
    """Whoever enters rows in the late ledger of ``topology``, inputs first; those that nothing tells apart together."""
    alike: dict[Signature, list[tuple[int, Node]]] = {}
    for number, node in enumerate(topology.nodes(), start=1):
        signature = _signature(node)
        if signature is not None and judges(node):
            alike.setdefault(signature, []).append((number, node))
    return [
        Judge(
            topology=topology,
            signature=signature,
            nodes=tuple(node for _, node in found),
            numbers=tuple(number for number, _ in found),
        )
        for signature, found in alike.items()
    ]


def judges(node: Node) -> bool:
    """Whether ``node`` judges records of the log; what was derived from them is never late."""
    return _signature(node) is not None and any(map(_brings_records, node.inputs))


def _brings_records(node: Node) -> bool:
    return isinstance(node, Source) or any(map(_brings_records, records_from(node)))


def _signature(node: Node) -> Signature | None:
    if isinstance(node, WindowedAggregate):
        if isinstance(node.windows, GlobalWindow | LastN):
            return None
        length_ms, bounds_ms = _length_ms(node), frozenset({node.windows.closes_ms(0)})
    else:
        length_ms, bounds_ms = None, frozenset(_bounds_ms(node))
    if not bounds_ms:
        return None
    has_window = isinstance(node, WindowedAggregate)
    return Signature(kind=type(node), has_window=has_window, length_ms=length_ms, bounds_ms=bounds_ms)


def _length_ms(node: WindowedAggregate) -> int | None:
    match node.windows:
        case TimeWindows(size_ms=length_ms):
            return length_ms
        case SessionWindows() | GlobalWindow() | LastN():
            return None
    return node.windows.difference_ms


def _bounds_ms(node: Node) -> Iterator[int]:
    """How far behind the stream time a record is on time; the first moment at which it is late is 1 ms later."""
    match node:
        case StreamStreamJoin():
            yield from (node.before_ms + node.grace_ms + 1, node.after_ms + node.grace_ms + 1)
        case InOrder():
            yield node.grace_ms + 1
        case Deduplicate():
            yield node.horizon_ms + 1
        case StreamTableJoin(history_ms=int(history_ms)):
            yield history_ms + 1


def _waits(node: Node) -> bool:
    match node:
        case WindowedAggregate():
            return node.emission.kind == "final"
        case StreamStreamJoin():
            return node.kind != "inner"
    return holds_back(node)
