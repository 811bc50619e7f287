"""What the engine runs, and that it names what it does not run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recount.declare.aggregates import average, count, total
from recount.declare.expressions import col
from recount.declare.flow import RecordStream
from recount.declare.operators.nodes import Sink
from recount.declare.schema import BOOLEAN, LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import sliding, tumbling
from recount.engine.stage.partials import plan_of

ORDERS = Topic(
    name="orders",
    key="id",
    value=RecordSchema.of(region=STRING, amount=decimal(9, 2), vip=BOOLEAN, note=STRING, at=LONG),
    event_time="at",
)
OUTPUT = Topic(name="output", key="region")
MINUTE = tumbling("60 s", grace="0 s")
BY_REGION = stream(ORDERS).select_key(region=col("region"))


def final(records: RecordStream) -> Sink:
    return records.windowed_by(MINUTE).aggregate(orders=count()).emit_final().to(OUTPUT)


def test_only_the_fields_that_are_read_are_columns() -> None:
    vips = stream(ORDERS).filter(col("vip")).select_key(region=col("region"))
    sink = vips.windowed_by(MINUTE).aggregate(total=total("amount")).emit_final().to(OUTPUT)
    assert plan_of(Topology(name="vips", sinks=[sink])).columns == ["region", "amount", "vip", "at"]


@pytest.mark.parametrize(
    "sinks",
    [
        [final(BY_REGION), BY_REGION.to(replace(OUTPUT, name="by-region"))],
        [BY_REGION.to(OUTPUT)],
        [final(BY_REGION.repartition(2))],
        [BY_REGION.windowed_by(sliding("60 s", grace="0 s")).aggregate(n=count()).emit_final().to(OUTPUT)],
        [BY_REGION.windowed_by(MINUTE).aggregate(n=count()).emit_each_record().to(OUTPUT)],
        [BY_REGION.windowed_by(MINUTE).aggregate(mean=average("amount")).emit_final().to(OUTPUT)],
        [BY_REGION.windowed_by(MINUTE).aggregate(n=count().only(col("vip"))).emit_final().to(OUTPUT)],
    ],
)
def test_other_shapes_have_no_plan(sinks: list[Sink]) -> None:
    assert plan_of(Topology(name="other", sinks=sinks)) is None
