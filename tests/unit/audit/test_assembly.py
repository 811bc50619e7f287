"""Item 1.7: arrival order is an explicit choice, and the certificate says where it was made."""

from __future__ import annotations

from recount.audit.certificate.assembly import lookups_by_arrival
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table

ORDERS = Topic(name="orders", key="id", value=RecordSchema.of(item=STRING))
CUSTOMERS = Topic(name="customers", key="id", value=RecordSchema.of(tier=STRING))
OUT = Topic(name="out", key="id")


def test_a_lookup_as_of_arrival_is_listed_and_one_as_of_the_event_is_not() -> None:
    by_event = stream(ORDERS).left_join_table(table(CUSTOMERS))
    by_arrival = stream(ORDERS).left_join_table(table(CUSTOMERS), as_of="arrival")
    assert lookups_by_arrival(Topology(name="t", sinks=[by_event.to(OUT)])) == []
    assert lookups_by_arrival(Topology(name="t", sinks=[by_arrival.to(OUT)])) == [
        "left join with table, as of arrival, of customers"
    ]
