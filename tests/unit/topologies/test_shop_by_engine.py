"""The engine makes of every declared stream what the interpreter makes of it, whoever restarts between two batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.topology_engine import TopologyEngine
from tests.unit.engine.topology_runs import Row, engine_rows, interpreter_row
from tests.unit.topologies.shop_log import CLOSING, CLOSING_MS, PARTITIONS, Arrival, closing, shop_log, topics_of

from recount.audit.compare.identity import identity_of
from recount.declare.registry import declared
from recount.declare.topology import Topology, Written
from recount.reference.topology_driver import TopologyDriver

SHOP = declared().topologies
BATCHES = 3


def batches(topology: Topology) -> list[list[Arrival]]:
    """The log cut into ``BATCHES``; the last records of the partitions are a batch of their own."""
    topics = topics_of(topology)
    last = closing(topics)
    log = shop_log(topics, seed=7)[: -len(last)]
    ends = [len(log) * number // BATCHES for number in range(BATCHES + 1)]
    cuts = [log[start:end] for start, end in pairwise(ends)]
    # as a batch reads them: the topics of tables first, then topic by topic, partition by partition
    return [sorted(cut, key=lambda one: (topics.index(one.topic), one.partition)) for cut in [*cuts, last]]


def by_engine(topology: Topology, cuts: Sequence[Sequence[Arrival]]) -> Mapping[str, list[Row]]:
    engine = TopologyEngine(topology, dict.fromkeys(topics_of(topology), PARTITIONS))
    for cut in cuts:
        by_topic: dict[str, list[LogRecord]] = {topic: [] for topic in topics_of(topology)}
        for one in cut:
            key = None if one.key is None else one.key.encode()
            by_topic[one.topic].append(
                LogRecord(partition=one.partition, timestamp_ms=one.timestamp_ms, key=key, value=one.value)
            )
        engine.batch(by_topic, now_ms=CLOSING_MS)
        engine.restart()
    return {node.topic.name: list(engine_rows(node, engine.emitted(node.table))) for node in topology.written}


def by_interpreter(topology: Topology, cuts: Sequence[Sequence[Arrival]]) -> Mapping[str, list[Row]]:
    many = dict.fromkeys(topics_of(topology), PARTITIONS)
    driver = TopologyDriver(topology, partitions=many, wall_clock_ms=CLOSING_MS)
    for cut in cuts:
        with driver.batch():
            for one in cut:
                driver.pipe(
                    one.topic, key=one.key, value=one.value, timestamp_ms=one.timestamp_ms, partition=one.partition
                )
    return {
        node.topic.name: [interpreter_row(out) for out in driver.outputs(node.topic.name)] for node in topology.written
    }


def comparable(written: Written, rows: Sequence[Row]) -> Any:
    """Of rows that replace each other the last ones, else all."""
    identity = identity_of(written)
    mine = [row for row in rows if CLOSING not in str(row)]
    if not identity.is_latest:
        return Counter(mine)
    latest = {(key, window): (at_ms if identity.is_timed else None, value) for key, window, at_ms, _, value in mine}
    # what came and went within a batch left no row
    return {place: told for place, told in latest.items() if told[1] is not None}


@pytest.mark.parametrize("topology", SHOP.values(), ids=lambda topology: topology.name)
def test_the_engine_makes_of_a_stream_what_the_interpreter_makes(topology: Topology) -> None:
    cuts = batches(topology)
    told, expected = by_engine(topology, cuts), by_interpreter(topology, cuts)
    for written in topology.written:
        of_interpreter = comparable(written, expected[written.topic.name])
        assert of_interpreter, f"nothing was written to {written.topic.name}"
        assert comparable(written, told[written.topic.name]) == of_interpreter
