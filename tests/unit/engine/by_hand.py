"""Topologies and logs by hand, to be held to the law of the drawn ones."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.unit.engine.engine import LogRecord
from tests.unit.engine.random_flows import TOPICS, Comparable
from tests.unit.engine.random_topologies import Drawn
from tests.unit.engine.random_topology_logs import Cut, Event, closing
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


def assert_law(drawn: Drawn, *cuts: Cut) -> None:
    """Engine and interpreter agree on this log."""
    log = [*cuts, closing(drawn.partitions)]
    assert_agree(drawn, by_engine(drawn, log), by_interpreter(drawn, log))
