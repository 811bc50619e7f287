"""How many rows leave each operator; filters and processors are taken to let every record pass."""

from __future__ import annotations

from collections.abc import Mapping

from recount.core.changelogs import Suppress, TableAggregate
from recount.core.joins import StreamStreamJoin, StreamTableJoin
from recount.core.nodes import Node, Source, WindowedAggregate
from recount.core.processing import Deduplicate
from recount.core.topology import Topology
from recount.core.windows import SessionWindows, SlidingWindows, TimeWindows
from recount.spark.estimates.arrivals import Arrivals
from recount.spark.estimates.joined import pairs_per_s
from recount.spark.estimates.windowed import changed_windows, sessions_per_s
from recount.spark.estimates.workload import Workload, key_name


def rates(topology: Topology, given: Workload) -> dict[Node, float]:
    """Rows a second that leave each operator, inputs first."""
    leaving: dict[Node, float] = {}
    for node in topology.nodes():
        leaving[node] = _leaving(node, leaving, given)
    return leaving


def inputs_of(node: Node, leaving: Mapping[Node, float], given: Workload) -> tuple[Arrivals, ...]:
    """The rows at each input of ``node``, over the keys by which it takes them."""
    if isinstance(node, Deduplicate):
        return (Arrivals(per_s=leaving[node.input], keys=given.ids_of(node)),)
    return tuple(Arrivals(per_s=leaving[above], keys=given.keys_of(key_name(above))) for above in node.inputs)


def _leaving(node: Node, leaving: Mapping[Node, float], given: Workload) -> float:
    inputs = inputs_of(node, leaving, given)
    match node:
        case Source():
            return given.rate_of(node.topic.name)
        case WindowedAggregate():
            return _results_per_s(node, inputs[0], given.trigger_ms)
        case StreamStreamJoin():
            alone = {"inner": 0.0, "left": inputs[0].per_s, "outer": inputs[0].per_s + inputs[1].per_s}[node.kind]
            return max(pairs_per_s(node, *inputs), alone)
        case StreamTableJoin():
            return inputs[0].per_s
        case TableAggregate():
            return 2 * inputs[0].per_s
        case Suppress(limit_ms=pause_ms) | Deduplicate(horizon_ms=pause_ms):
            return inputs[0].firsts_per_s(pause_ms)
    return sum(above.per_s for above in inputs)


def _results_per_s(node: WindowedAggregate, rows: Arrivals, trigger_ms: int) -> float:
    if node.emission.kind == "each record":
        return rows.per_s * _windows_of_a_record(node, rows)
    if node.emission.kind == "each batch":
        return _changed_in(node, rows, trigger_ms) * 1_000 / trigger_ms
    match node.windows:
        case TimeWindows() as windows:
            return rows.keys_within(windows.size_ms) * 1_000 / windows.advance_ms
        case SlidingWindows() as windows:
            return rows.per_s * (2 - rows.silence(windows.difference_ms))
        case SessionWindows() as windows:
            return sessions_per_s(windows, rows)
    raise AssertionError("refused at declaration")


def _changed_in(node: WindowedAggregate, rows: Arrivals, span_ms: int) -> float:
    """How many windows of all keys the rows of ``span_ms`` change."""
    if isinstance(node.windows, TimeWindows):
        return changed_windows(node.windows, rows, span_ms)
    return rows.keys_within(span_ms) * _windows_of_a_record(node, rows)


def _windows_of_a_record(node: WindowedAggregate, rows: Arrivals) -> float:
    """How many windows a record changes; sliding: its own, and those after the records that lie in the difference."""
    match node.windows:
        case TimeWindows() as windows:
            return windows.size_ms / windows.advance_ms
        case SlidingWindows() as windows:
            return 1 + rows.within(windows.difference_ms) / rows.keys
    return 1
