"""The fields that the recompute decodes: all that anything can depend on, whatever the stream makes of them."""

from __future__ import annotations

import pytest
from tests.unit.engine.random_topologies import drawn_topology

from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.flow import RecordStream
from recount.declare.operators.keys_and_fields import columns_read
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.recompute.rules.result_rules import fields_needed

FIELDS = RecordSchema.of(who=STRING, n=LONG, kind=STRING, other=LONG, at=LONG, required=("at",))
EVENTS = stream(Topic(name="events", key="id", value=FIELDS, event_time="at"))


def needed(*flows: RecordStream) -> list[str]:
    topology = Topology(
        name="fields", sinks=[flow.to(Topic(name=f"out-{number}", key="who")) for number, flow in enumerate(flows)]
    )
    [source] = {node.topic.name: node for node in topology.sources}.values()
    return fields_needed(topology, source)


def counted(rows: RecordStream) -> RecordStream:
    return rows.windowed_by(tumbling("1 min", grace="0 s")).aggregate(n=count()).emit_final()


@pytest.mark.parametrize(
    ("flows", "expected"),
    [
        ([counted(EVENTS.select_key(who=col("who")))], ["who", "at"]),
        ([counted(EVENTS.select_key(who=col("who")).filter(col("kind") == "a"))], ["who", "kind", "at"]),
        ([EVENTS.select_key(who=col("who")).select(sum=col("n") + 1)], ["who", "n", "at"]),
        ([EVENTS.select_key(who=col("who"))], [*FIELDS.fields]),
        ([counted(EVENTS.select_key(who=col("who"))), EVENTS.select_key(who=col("who"))], [*FIELDS.fields]),
        ([counted(EVENTS.select_key(who=col("who")).deduplicate(by=col("n"), horizon="1 min"))], [*FIELDS.fields]),
    ],
)
def test_whole_rows_need_all_fields_and_others_those_that_are_named(
    flows: list[RecordStream], expected: list[str]
) -> None:
    assert needed(*flows) == expected


def test_a_field_under_another_name_is_needed_where_it_is_read() -> None:
    renamed = EVENTS.select_key(who=col("who")).with_fields(m=col("other"))
    summed = renamed.windowed_by(tumbling("1 min", grace="0 s")).aggregate(m=total("m")).emit_final()
    assert needed(summed) == ["who", "other", "at"]


@pytest.mark.parametrize("seed", range(200))
def test_no_fewer_are_decoded_than_the_stream_reads(seed: int) -> None:
    topology = drawn_topology(seed).topology
    for source in topology.sources:
        read = fields_needed(topology, source)
        assert set(columns_read(topology, source.topic)) <= set(read)
