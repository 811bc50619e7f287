"""Topologies and logs by hand, to be held to the law of the drawn ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.unit.engine.engine import LogRecord
from tests.unit.engine.random_flows import TOPICS, Comparable
from tests.unit.engine.random_topologies import Drawn
from tests.unit.engine.random_topology_logs import Cut, Event, closing
from tests.unit.engine.topology_engine import TopologyEngine
from tests.unit.engine.topology_runs import assert_agree, by_engine, by_interpreter

from recount.declare.flow import RecordStream, Table, stream
from recount.declare.topics import Topic
from recount.declare.topology import Topology

EXACT = Comparable(exactness="rows", with_times=True, has_bounds=True)
LATEST = Comparable(exactness="latest", with_times=True, has_bounds=True)
LEFT = stream(TOPICS["left"])


def drawn_by_hand(flow: RecordStream | Table, sink: Comparable, partitions: Mapping[str, int]) -> Drawn:
    """A topology that ends in ``flow``, as if it had been drawn."""
    topology = Topology(name="drawn", sinks=[flow.to(Topic(name="out", key="id"))], idle_after="60 s")
    return Drawn(topology=topology, partitions=partitions, sinks={"out": sink}, any_order=False, idles=False)


def left(
    at: int, word: str | None = "a", *, key: bytes | None = b"a", partition: int = 0, n: int = 1, flag: bool = True
) -> Event:
    """A record of the topic `left`."""
    value = json.dumps({"ln": n, "lw": word, "lb": flag}).encode()
    return Event("left", LogRecord(partition=partition, timestamp_ms=at, key=key, value=value))


def right(at: int, word: str | None = "a", *, partition: int = 0) -> Event:
    """A record of the topic `right`, whose time is a field."""
    value = json.dumps({"rn": 1, "rw": word, "rat": at}).encode()
    return Event("right", LogRecord(partition=partition, key=b"r", value=value))


def change(at: int, n: int | None, *, topic: str = "table", key: bytes = b"a", partition: int = 0) -> Event:
    """A change of a topic that is read as a table: a row with the number ``n``, or a deletion."""
    value = None if n is None else json.dumps({f"{topic[0]}n": n, f"{topic[0]}w": "a"}).encode()
    return Event(topic, LogRecord(partition=partition, timestamp_ms=at, key=key, value=value))


def parts(log: Sequence[Event], at: Sequence[int]) -> list[Cut]:
    """``log`` in batches that begin at the places ``at``; the engine restarts before each."""
    return [Cut(log[start:end], restarts=True) for start, end in pairwise([0, *at, len(log)])]


def assert_law(drawn: Drawn, *cuts: Cut) -> None:
    """Engine and interpreter agree on this log; restarts deal the keys out to three parts, and back to one."""
    log = [*cuts, closing(drawn.partitions)]
    assert_agree(drawn, by_engine(drawn, log, (1, 3)), by_interpreter(drawn, log))


def run(flow: RecordStream | Table, *batches: Sequence[Event] | Cut, **partitions: int) -> TopologyEngine:
    """The engine after these batches; a topic has one partition unless ``partitions`` says otherwise."""
    topology = Topology(name="run", sinks=[flow.to(Topic(name="out", key="id"))], idle_after="60 s")
    read = {source.topic.name: 1 for source in topology.sources} | partitions
    return fed(TopologyEngine(topology, read), *batches)


def fed(engine: TopologyEngine, *batches: Sequence[Event] | Cut) -> TopologyEngine:
    """``engine`` after these batches more."""
    for batch in batches:
        cut = batch if isinstance(batch, Cut) else Cut(batch)
        if cut.restarts:
            engine.restart()
        engine.now_ms += cut.later_ms
        records = {topic: [one.record for one in cut.events if one.topic == topic] for topic in engine.partitions}
        engine.batch(records, now_ms=engine.now_ms)
    return engine


def rows(engine: TopologyEngine, *names: str) -> list[tuple[Any, ...]]:
    """These columns of all that was written."""
    return engine.emitted("out").select(names).rows()


def held(engine: TopologyEngine) -> list[dict[str, int]]:
    """How many rows each state of each operator that has any holds, clocks apart."""
    found: dict[str, dict[str, int]] = {}
    for name, many in engine.computation.held.items():
        _, number, _, state = name.split(" ", 3)
        if not state.startswith("time of "):
            found.setdefault(number, {})[state] = many
    return list(found.values())
