"""A record that somebody ordered to set aside is a bad record, in the three implementations, whatever else it is."""

from __future__ import annotations

from typing import Any

from tests.unit.engine.engine import LogRecord, arrow_batch
from tests.whole_topic import whole_topic

from recount.declare.operators.nodes import Source
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.engine.stage.map_stage import Intake
from recount.recompute.decoding import NO_LIMIT_MS, DecodePass, Limits
from recount.reference.topology_driver import TopologyDriver

AMOUNTS = Topic(name="amounts", key="id", value=RecordSchema.of(n=LONG))
VALUES = [b'{"n": 1}', b'{"n": 2}', b"no json", b"no json", None]
ASIDE = frozenset({1, 3, 4})
EXPECTED = [None, "set-aside", "undecodable", "set-aside", "set-aside"]


def test_the_three_implementations_agree_and_the_order_goes_before_what_else_is_wrong() -> None:
    source = Source(topic=AMOUNTS)
    batch = arrow_batch("amounts", 0, 0, [LogRecord(timestamp_ms=n, value=value) for n, value in enumerate(VALUES)])
    good, bad = Intake(source, ["n"], needs_key=True, latest_ms=NO_LIMIT_MS, set_aside=ASIDE).take(batch)
    by_stream: dict[int, Any] = dict.fromkeys(good["offset"].to_list()) | dict(
        bad.select("offset", "reason").iter_rows()
    )
    assert [by_stream[offset] for offset in range(len(VALUES))] == EXPECTED
    assert bad["timestamp_ms"].to_list() == [1, 2, 3, 4]

    limits = {0: Limits(starts=[0], latest_ms=[NO_LIMIT_MS], set_aside=ASIDE)}
    [found] = DecodePass(flow=whole_topic(source=source, needs_record_key=True), limits=limits)(iter([batch]))
    assert [row["reason"] for row in found.to_pylist()] == EXPECTED

    topology = Topology(name="kept", sinks=[stream(AMOUNTS).to(Topic(name="out", key="id"))], on_bad_record="fail")
    driver = TopologyDriver(topology, set_aside=["amounts-0@0"])
    assert driver.pipe("amounts", key="a", value=b"no json", timestamp_ms=0) == "dead-lettered"
    assert driver.pipe("amounts", key="a", value=b'{"n": 1}', timestamp_ms=0) == "counted"
