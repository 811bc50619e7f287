"""Steady flows: records of all keys alike, at random times, through the engine and through the interpreter."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from tests.unit.engine.engine import LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.advise.measured import Held
from recount.declare.flow import RecordStream, Table
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.engine.operators.batch_graph import Graph
from recount.engine.state.graph_state import GraphState, since_snapshot
from recount.reference.topology_driver import TopologyDriver

PARTITIONS = 2
clicks = Topic(
    name="clicks", key="user", partitions=PARTITIONS, value=RecordSchema.of(user=STRING, page=STRING, cost=LONG)
)
views = Topic(name="views", key="user", partitions=PARTITIONS, value=RecordSchema.of(seen=STRING, length=LONG))
out = Topic(name="out", key="user")
TEXT = "text of 20 characters"


@dataclass(frozen=True, kw_only=True)
class Flow:
    """``per_s`` records a second to each topic for ``seconds``, of ``keys`` keys; None: each has one of its own.

    The records of partition 1 come ``late_by_s`` later than those of partition 0; the last of them have not come yet.
    """

    per_s: int
    keys: int | None
    seconds: int
    late_by_s: int = 0

    def records(self, topics: int) -> Iterator[tuple[int, int, int, str]]:
        """Time in ms, which topic, partition and key of each record, by time; a key lives in one partition."""
        drawn, count = random.Random(7), self.per_s * self.seconds * topics
        times = sorted(drawn.randrange(self.seconds * 1_000) for _ in range(count))
        for number, at_ms in enumerate(times):
            key = number if self.keys is None else drawn.randrange(self.keys)
            yield at_ms, drawn.randrange(topics), key % PARTITIONS, f"user number {key:08}"


def topology_of(made: RecordStream | Table) -> Topology:
    """``made``, written to a topic."""
    return Topology(name="steady", sinks=[made.to(out)])


def held_by(engine: TopologyEngine) -> Mapping[str, Held]:
    """What the engine holds of each state, read back from what it wrote."""
    graph = Graph(engine.topology)
    GraphState(graph.states, graph.clocks).load(since_snapshot(engine.state.lazy()))
    return {name: Held.of(state.rows) for name, state in graph.states.items()}


def processed(topology: Topology, flow: Flow, batch_s: int) -> TopologyEngine:
    """The engine after ``flow``, cut into batches of ``batch_s``."""
    names = [source.topic.name for source in topology.sources]
    engine = TopologyEngine(topology, dict.fromkeys(names, PARTITIONS))

    def comes_in_batch(record: tuple[int, int, int, str]) -> int:
        at_ms, _, partition, _ = record
        return (at_ms + partition * flow.late_by_s * 1_000) // (batch_s * 1_000)

    come = [record for record in flow.records(len(names)) if comes_in_batch(record) < flow.seconds // batch_s]
    for _, batch in groupby(sorted(come, key=comes_in_batch), key=comes_in_batch):
        log: dict[str, list[LogRecord]] = {name: [] for name in names}
        for at_ms, topic, partition, key in batch:
            value = json.dumps(_value(names[topic], key)).encode()
            log[names[topic]].append(LogRecord(partition=partition, timestamp_ms=at_ms, key=key.encode(), value=value))
        engine.batch(log)
    return engine


def emitted_by_the_interpreter(topology: Topology, flow: Flow) -> int:
    """How many rows the reference interpreter emits for ``flow``."""
    names = [source.topic.name for source in topology.sources]
    driver = TopologyDriver(topology, partitions=dict.fromkeys(names, PARTITIONS))
    for at_ms, topic, partition, key in flow.records(len(names)):
        driver.pipe(names[topic], key=key, value=_value(names[topic], key), timestamp_ms=at_ms, partition=partition)
    return len(driver.outputs(out.name))


def _value(topic: str, key: str) -> dict[str, object]:
    return {"user": key, "page": TEXT, "cost": 1} if topic == clicks.name else {"seen": TEXT, "length": 1}
