"""What ``recount topics`` says of streams whose topic has, or is to have, more partitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recount.declare.aggregates import count, last
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table, stream, table
from recount.declare.operators.keys_and_fields import in_several_partitions
from recount.declare.operators.nodes import KEY
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import tumbling
from recount.kafka.topic_drift import Drift, TopicChange
from recount.kafka.topics_on_cluster import raised_partitions

ORDERS = Topic(name="orders", key="id", value=RecordSchema.of(n=LONG), partitions=3)


def topology(flow: RecordStream | Table) -> Topology:
    return Topology(name="firsts", sinks=[flow.to(Topic(name="out", key="id"))])


FIRSTS = topology(stream(ORDERS).deduplicate(KEY, horizon="1 h"))
PAID = stream(Topic(name="paid", key="id", value=RecordSchema.of(paid=LONG)))
HOUR = stream(ORDERS).windowed_by(tumbling("1 h", grace="0 s"))
FIRST_WINS = "first of each __key by offset within 1 h: the record that was read first wins"


@pytest.mark.parametrize(
    ("actual", "declared", "said"),
    [("4", "3", "orders has 4 partitions, 3 are declared"), ("3", "4", "orders has 3 partitions, 4 are declared")],
)
def test_streams_that_read_a_topic_with_another_number_of_partitions_are_named(
    actual: str, declared: str, said: str
) -> None:
    drift = Drift(setting="partitions", actual=actual, declared=declared)
    change = TopicChange(topic=replace(ORDERS, partitions=int(declared)), action="drifted", drift=(drift,))
    lines = list(raised_partitions([change], [FIRSTS], {}))
    assert said in lines[0]
    assert "firsts: a key whose records lie in two partitions" in lines[1]
    assert FIRST_WINS in lines[2]


def test_a_topic_with_more_partitions_than_the_last_batch_knew_is_named_until_a_batch_knows_them() -> None:
    change = TopicChange(topic=ORDERS, action="in step")
    lines = list(raised_partitions([change], [FIRSTS], {("firsts", "orders"): 2}))
    assert "its last batch knew 2 partitions" in lines[1]
    assert not list(raised_partitions([change], [FIRSTS], {("firsts", "orders"): 3}))
    assert not list(raised_partitions([change], [FIRSTS], {}))


@pytest.mark.parametrize(
    ("flow", "said"),
    [
        (table(ORDERS), "its row is the one that was read last"),
        (table(ORDERS, versioned=True), None),
        (PAID.join_table(table(ORDERS)), None),  # as of the event: event time decides
        (PAID.join_table(table(ORDERS).filter(col("n") > 0).select(m=col("n"))), None),
        (PAID.join_table(table(ORDERS), as_of="arrival"), "its row is the one that was read last"),
        (stream(ORDERS).in_order(grace="1 s").to_table(), None),
        (stream(ORDERS).process(lambda _row, _state: [], m=LONG), "the stream ends"),
        (HOUR.aggregate(m=count()).emit_final(), None),
        (HOUR.aggregate(m=last("n")).emit_final(), "last take the values of the lower partition first"),
        (HOUR.aggregate(m=count()).emit_each_record(), "its updates leave in the order"),
    ],
)
def test_what_follows_is_said_of_each_operator_to_which_order_means_something(
    flow: RecordStream | Table, said: str | None
) -> None:
    lines = in_several_partitions(topology(flow), "orders")
    assert [said in line for line in lines] == ([] if said is None else [True])
    assert not in_several_partitions(topology(flow), "payments")


def test_a_table_that_is_looked_up_as_of_the_event_and_written_as_well_takes_the_order_of_reading() -> None:
    rows = table(ORDERS)
    sinks = [PAID.join_table(rows).to(Topic(name="out", key="id")), rows.to(Topic(name="rows", key="id"))]
    lines = in_several_partitions(Topology(name="both", sinks=sinks), "orders")
    assert ["its row is the one that was read last" in line for line in lines] == [True]
