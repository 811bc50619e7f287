"""Random topologies: chains of every operator, each flow knowing how far its rows depend on where batches are cut.

A drawn topology is a `Drawn`: the topology, how many partitions each topic has, which topics feed tables (their changes
are read first in a batch), and for each sink what can be compared of it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from tests.unit.engine.random_flows import STREAMS, TOPICS, Builder, Comparable, Flow
from tests.unit.engine.random_steps import passed_by, stream_steps, through
from tests.unit.engine.random_tables import build_table, selected, table_steps, with_field

from recount.declare.changes import describe
from recount.declare.flow import RecordStream
from recount.declare.operators.keys_and_fields import folds_by_key
from recount.declare.operators.nodes import WindowedAggregate
from recount.declare.operators.processing import Process
from recount.declare.topology import Topology


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A random topology; see the module."""

    topology: Topology
    partitions: Mapping[str, int]
    sinks: Mapping[str, Comparable]
    any_order: bool
    """By which order topics and partitions are read within a batch makes no difference."""
    idles: bool
    """Partitions may become idle without the rows depending on when."""
    by_key: bool = False
    """A record's key says in which partition it is; now and then the key changes partition, if it ``moves``."""

    @property
    def moves(self) -> bool:
        """A key may change partition: no processor is there, and no fold of all time, which would refuse it."""
        nodes = list(self.topology.nodes())
        return not any(isinstance(node, Process) for node in nodes) and not _folds_by_key(self.topology)

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """How Hypothesis shows a falsifying example."""
        printer.text(f"{describe(self.topology)}\n  partitions {dict(self.partitions)}")


def _folds_by_key(topology: Topology) -> bool:
    return any(isinstance(node, WindowedAggregate) and folds_by_key(node) for node in topology.nodes())


def stream_chain(build: Builder) -> Flow:
    """One to four operators after a topic."""
    flow = build.source(build.one_of(*STREAMS))
    if build.one_of(True, False):
        flow = build.keyed(flow)
    for _ in range(build.one_of(1, 2, 3, 4)):
        steps = stream_steps(build, flow) if isinstance(flow.rows, RecordStream) else table_steps(flow)
        step = build.one_of(*steps)
        # what was made of a result that is revised later stands beside what is made of its revision
        build.idles &= not flow.has_bounds or step in (with_field, selected, passed_by, through)
        flow = step(build, flow)
    return flow


def drawn_topology(seed: int) -> Drawn:
    """A topology with one or two chains, and the partitions of its topics: always the same of one ``seed``."""
    dice = random.Random(seed)
    partitions = {name: dice.choice([1, 1, 2, 3] if name in STREAMS else [1, 2]) for name in TOPICS}
    build = Builder(dice, partitions, other_dice=random.Random(seed), wide_dice=random.Random(seed))
    for chain in dice.choices([stream_chain, stream_chain, build_table], k=dice.choice([1, 1, 2])):
        build.end(chain(build))
    topology = Topology(name="drawn", sinks=build.sinks, idle_after="60 s")
    read = {source.topic.name for source in topology.sources}
    return Drawn(
        topology=topology,
        partitions={name: count for name, count in partitions.items() if name in read},
        sinks=build.comparable,
        any_order=build.any_order,
        idles=build.idles,
        by_key=build.by_key or _folds_by_key(topology),
    )


def drawn_topologies(block: int = 0) -> st.SearchStrategy[Drawn]:
    """Topologies, others in every ``block``.

    Of dice, because Hypothesis would draw the parts of a topology much alike; so there is but the log to shrink.
    """
    return st.integers(0, 2**32 - 1).map(lambda n: drawn_topology(n + (block << 32)))
