"""Every declared stream can be recomputed as its audit does it, and the recompute is the interpreter."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.recompute.graph_logs import from_spark, interpreted
from tests.unit.topologies.shop_log import CLOSING, CLOSING_MS, PARTITIONS, Arrival, shop_log, topics_of

from recount.audit.compare.identity import identity_of
from recount.declare.registry import declared
from recount.declare.topology import Topology
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.operators.recomputed import recomputed
from recount.recompute.raw_log import SCHEMA, RawLog
from recount.reference.topology_driver import TopologyDriver

SHOP = declared().topologies
AT_ONCE = 6


def together() -> Iterator[Topology]:
    """The declared streams, a few in one topology: those that read the same topics share what is read of them."""
    streams = sorted(SHOP.values(), key=lambda one: (sorted(topics_of(one)), one.name))
    for first in range(0, len(streams), AT_ONCE):
        some = streams[first : first + AT_ONCE]
        yield Topology(name=f"{some[0].name}-to-{some[-1].name}", sinks=[sink for one in some for sink in one.sinks])


def raw_log(session: SparkSession, log: Sequence[Arrival], topic: str) -> RawLog:
    offsets: Counter[int] = Counter()
    rows: list[tuple[Any, ...]] = []
    for one in log:
        if one.topic == topic:
            key = None if one.key is None else one.key.encode()
            rows.append((one.partition, offsets[one.partition], one.timestamp_ms, key, one.value))
            offsets[one.partition] += 1
    return RawLog(frame=session.createDataFrame(sorted(rows, key=lambda row: row[:2]), SCHEMA).coalesce(1))


def without_closing(told: Counter[Any]) -> Counter[Any]:
    return Counter({row: times for row, times in told.items() if CLOSING not in str(row)})


@pytest.mark.parametrize("topology", together(), ids=lambda topology: topology.name)
def test_streams_are_recomputed_as_the_interpreter_has_them(spark: SparkSession, topology: Topology) -> None:
    topics = topics_of(topology)
    log = shop_log(topics, seed=12, length=80)
    driver = TopologyDriver(topology, partitions=dict.fromkeys(topics, PARTITIONS))
    for one in log:
        driver.pipe(one.topic, key=one.key, value=one.value, timestamp_ms=one.timestamp_ms, partition=one.partition)
    driver.advance_to(CLOSING_MS + 86_400_000)
    # with ends of tables, as an audit has them: a lookup must be one that can be told up to an offset
    found = recomputed(spark, topology, {topic: raw_log(spark, log, topic) for topic in topics}, table_ends=[])
    try:
        for written in topology.written:
            identity = identity_of(written)
            compared = {"streams": not identity.is_latest, "timed": identity.is_timed}
            expected = without_closing(interpreted(driver.outputs(written.topic.name), **compared))
            assert expected, f"nothing was written to {written.topic.name}"
            assert without_closing(from_spark(found.results[written], written.key, **compared)) == expected
        assert fates_of(found.ledgers["fates"]) == Counter(
            (entry.topic, entry.partition, entry.offset, fate) for entry, fate in driver.fate_of.items()
        )
    finally:
        found.release()


def fates_of(frame: Frame) -> Counter[Any]:
    return Counter((row["topic"], row["partition"], row["offset"], row["fate"]) for row in frame.rows())
