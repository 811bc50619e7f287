"""What a field is read for: results, functions and fates; what nobody reads need not be decoded."""

from __future__ import annotations

from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.operators.keys_and_fields import columns_read, fields_read
from recount.declare.operators.nodes import KEY
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling

_VALUE = RecordSchema.of(user=STRING, region=STRING, amount=LONG, note=STRING, at=LONG)
_ORDERS = Topic(name="orders", key="id", value=_VALUE)
_RESULTS = Topic(name="results", key="id")


def test_a_projection_reads_what_its_expressions_name_and_the_key() -> None:
    flow = stream(_ORDERS).filter(col("region") == "EU").select("amount")
    topology = Topology(name="flow", sinks=[flow.to(_RESULTS)])
    [source, kept, chosen, sink] = topology.nodes()
    read = fields_read(topology)
    assert (read[source], read[kept]) == ({KEY, "region", "amount"}, {KEY, "amount"})
    assert (read[chosen], read[sink]) == ({KEY, "amount"}, frozenset())


def test_a_field_that_is_replaced_before_it_is_read_is_not_read() -> None:
    flow = stream(_ORDERS).with_fields(note=col("region")).select_key(user=col("user")).select("note")
    assert columns_read(Topology(name="flow", sinks=[flow.to(_RESULTS)]), _ORDERS) == ["user", "region"]


def test_an_aggregation_reads_its_key_and_what_it_adds_up_where() -> None:
    sums = (
        stream(_ORDERS)
        .select_key(user=col("user"))
        .windowed_by(tumbling("5 s", grace="0 s"))
        .aggregate(spent=total("amount").only(col("region") == "EU"), orders=count())
        .emit_final()
    )
    assert columns_read(Topology(name="flow", sinks=[sums.to(_RESULTS)]), _ORDERS) == ["user", "region", "amount"]


def test_event_time_is_read_and_of_two_readers_of_a_topic_what_either_reads() -> None:
    timed = Topic(name="orders", key="id", value=_VALUE, event_time="at")
    other = Topic(name="others", key="id")
    sinks = [stream(timed).select("amount").to(_RESULTS), stream(timed).select("note").to(other)]
    assert columns_read(Topology(name="flow", sinks=sinks), timed) == ["amount", "note", "at"]


def test_a_function_may_read_every_field() -> None:
    flow = stream(_ORDERS).peek(print).select("amount")
    assert columns_read(Topology(name="flow", sinks=[flow.to(_RESULTS)]), _ORDERS) == list(_VALUE.fields)
