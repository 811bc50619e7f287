"""Streams that read one topic share its dead-letter topic, and none accuses another, whatever functions raise."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from delta.tables import DeltaTable
from tests.spark.audit.conftest import Scene, an_hour_of_orders
from tests.spark.audit.stage import output_topic

from recount.audit.certificate import load
from recount.core.aggregates import count
from recount.core.expressions import col
from recount.core.schema import STRING
from recount.core.topology import Topology, stream
from recount.core.windows import session
from recount.kafka.dead_letters import REASON, SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC, STREAM
from recount.kafka.topics import apply, plan

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("tiny")]
"""Streams and audits run for real: minutes where other work shares the machine."""


def named(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Raises for every record without a region, and for one with a large amount."""
    if row["amount"] > 50:
        raise ValueError(f"no such order: {object()}")
    return {"region": row["region"].upper()}


def beside(scene: Scene) -> Scene:
    """Another stream that reads the scene's topic, with functions that raise; it is audited in the general way."""
    visits = output_topic(f"visits-{uuid.uuid4().hex[:8]}")
    orders = stream(scene.topology.sources[0].topic).map(named, region=STRING).select_key(region=col("region"))
    seen = orders.windowed_by(session("5 min", grace="60 s")).aggregate(orders=count())
    topology = Topology(name=f"visits-{uuid.uuid4().hex[:8]}", sinks=[seen.emit_final().to(visits, table="visits")])
    admin = scene.connection.admin()
    apply(admin, plan(admin, [visits], "embedded"))
    return replace(scene, topology=topology)


def letter(scene: Scene, offset: int, reason: str) -> None:
    """A letter about a record of partition 0, as if the stream had written it."""
    told = {
        STREAM: scene.connection.group(scene.topology.name),
        REASON: reason,
        SOURCE_TOPIC: scene.orders,
        SOURCE_PARTITION: "0",
        SOURCE_OFFSET: str(offset),
    }
    producer = scene.connection.producer()
    headers = [(name, text.encode()) for name, text in told.items()]
    producer.produce(scene.topology.sources[0].topic.dead_letter_name, value=b"{}", headers=headers)
    assert producer.flush(30) == 0


def test_two_streams_on_a_topic_with_a_bad_and_a_late_record_and_functions_that_raise_both_match(scene: Scene) -> None:
    other = beside(scene)
    an_hour_of_orders(scene)
    scene.run()
    other.run(max_offsets=40)
    audits = [one.audit() for one in (scene, other)]
    assert [one.findings.differences for one in audits] == [(), ()]
    assert [sum(part.dead_lettered for part in one.findings.accounts) for one in audits] == [1, 32]
    assert load(audits[1].certificate)["warnings"][0] == "32 dead letters in 122 records: 26.23%, limit 1.00%"

    rejected = DeltaTable.forPath(scene.session, other.tables.rejected(other.topology.name))
    reasons = Counter(row.reason for row in rejected.toDF().collect())
    assert reasons == {
        "undecodable": 1,
        "function-raised: AttributeError in map to region": 30,
        "function-raised: ValueError in map to region": 1,
    }
    raised = rejected.toDF().where("reason like '%ValueError%'").first()
    assert raised is not None

    letter(other, 0, "undecodable")
    letter(other, raised.offset, "function-raised: KeyError in map to region")
    lost = rejected.toDF().where("reason like '%AttributeError%'").orderBy("offset").first()
    assert lost is not None
    rejected.delete(f"partition = {lost.partition} and offset = {lost.offset}")
    assert scene.audit(from_the_beginning=True).findings.differences == ()
    found = {(one.kind, one.verdict, one.evidence) for one in other.audit().findings.differences}
    assert found == {
        ("dead letters", "extra", (f"{scene.orders}-0@0",)),
        ("dead letters", "altered", (f"{scene.orders}-0@{raised.offset}",)),
        ("dead letters", "lost", (f"{scene.orders}-{lost.partition}@{lost.offset}",)),
    }
