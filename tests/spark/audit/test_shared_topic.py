"""Streams that read one topic share its dead-letter topic, and none accuses another."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from tests.spark.audit.conftest import Scene, an_hour_of_orders
from tests.spark.audit.stage import output_topic

from recount.core.aggregates import count
from recount.core.expressions import col
from recount.core.topology import Topology, stream
from recount.core.windows import session
from recount.kafka.dead_letters import SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC, STREAM
from recount.kafka.topics import apply, plan

pytestmark = pytest.mark.timeout(900)
"""Streams and audits run for real: minutes where other work shares the machine."""


def beside(scene: Scene) -> Scene:
    """Another stream that reads the scene's topic: sessions, which are audited in the general way."""
    visits = output_topic(f"visits-{uuid.uuid4().hex[:8]}")
    orders = stream(scene.topology.sources[0].topic).select_key(region=col("region"))
    seen = orders.windowed_by(session("5 min", grace="60 s")).aggregate(orders=count())
    topology = Topology(name=f"visits-{uuid.uuid4().hex[:8]}", sinks=[seen.emit_final().to(visits, table="visits")])
    admin = scene.connection.admin()
    apply(admin, plan(admin, [visits], "embedded"))
    return replace(scene, topology=topology)


def test_two_streams_on_a_topic_with_a_bad_and_a_late_record_both_match(scene: Scene) -> None:
    other = beside(scene)
    an_hour_of_orders(scene)
    scene.run()
    other.run()
    assert [one.audit().findings.differences for one in (scene, other)] == [(), ()]

    producer = scene.connection.producer()
    forged = {STREAM: scene.connection.group(other.topology.name), SOURCE_TOPIC: scene.orders}
    place = {SOURCE_PARTITION: "0", SOURCE_OFFSET: "0"}
    headers = [(name, text.encode()) for name, text in {**forged, **place}.items()]
    producer.produce(scene.topology.sources[0].topic.dead_letter_name, value=b"{}", headers=headers)
    assert producer.flush(30) == 0
    assert scene.audit(from_the_beginning=True).findings.differences == ()
    [accused] = other.audit().findings.differences
    assert (accused.kind, accused.verdict, accused.evidence) == ("dead letters", "extra", (f"{scene.orders}-0@0",))
