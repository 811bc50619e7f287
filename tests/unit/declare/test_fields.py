"""Which fields are read, for what, and which fields of which topics each field of a result is made of."""

from __future__ import annotations

import pytest

from recount.declare.aggregates import count
from recount.declare.changes import describe, mermaid
from recount.declare.expressions import col
from recount.declare.operators.keys_and_fields import Origins, columns_read, fields_read, origins
from recount.declare.operators.nodes import KEY
from recount.declare.registry import declared
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import session

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


def test_a_function_may_read_every_field() -> None:
    flow = stream(_ORDERS).peek(print).select("amount")
    assert columns_read(Topology(name="flow", sinks=[flow.to(_RESULTS)]), _ORDERS) == list(_VALUE.fields)


SHOP = declared()


def made_of(stream: str, topic: str) -> Origins:
    topology = SHOP.topologies[stream]
    [sink] = [written for written in topology.written if written.topic.name == topic]
    return origins(topology)[sink]


@pytest.mark.parametrize(
    ("stream", "topic", "field", "places"),
    [
        ("high-value-orders", "high-value-orders", "amount", {("orders", "amount")}),
        ("high-value-orders", "vip-orders", "vip", set()),
        ("enriched-orders", "enriched-orders", "amount_tier", {("orders", "amount")}),
        ("customer-stats", "customer-stats", "count", set()),
        ("customer-stats", "customer-stats", "total", {("orders", "amount")}),
        ("enriched-orders-by-customer", "enriched-orders-by-customer", "customer_name", {("customers", "name")}),
        (
            "enriched-orders-by-customer",
            "enriched-orders-by-customer",
            "within_credit_limit",
            {("customers", "credit_limit"), ("orders", "amount")},
        ),
        ("order-balances", "order-balances", "paid", {("orders", "amount"), ("payments", "amount")}),
        ("departed-users", "departed-users", "views", {("page-views", "user_id"), ("page-views", "page")}),
        ("section-visits", "visits", "user_id", {("click-events", "user_id"), ("page-views", "user_id")}),
    ],
    ids=["passed on", "constant", "expression", "count", "sum", "join", "both sides", "cogroup", "processor", "merge"],
)
def test_a_field_is_made_of_these(stream: str, topic: str, field: str, places: set[tuple[str, str]]) -> None:
    assert made_of(stream, topic).fields[field] == places


@pytest.mark.parametrize(
    ("stream", "topic", "places"),
    [
        ("enriched-orders", "enriched-orders", set()),
        ("high-value-orders", "vip-orders", {("orders", "amount")}),
        ("revenue-by-region", "windowed-revenue", {("orders", "region")}),
        ("orders-deduplicated", "orders-deduplicated", {("orders", "order_id")}),
        ("matched-orders", "matched-orders", {("orders", "order_id"), ("payments", "order_id")}),
        ("departed-users", "departed-users", {("page-views", "user_id"), ("page-views", "page")}),
    ],
    ids=["every record", "filter", "group", "deduplication", "join", "processor"],
)
def test_rows_are_decided_by_these(stream: str, topic: str, places: set[tuple[str, str]]) -> None:
    assert made_of(stream, topic).rows == places


def test_the_key_of_an_outer_join_is_that_of_either_side() -> None:
    outer = made_of("customer-accounts", "customer-accounts-outer")
    inner = made_of("customer-accounts", "customer-accounts")
    assert outer.fields["__key"] == {("customers", "customer_id"), ("users", "user_id")}
    assert inner.fields["__key"] == {("customers", "customer_id")}


CLICKS = Topic(name="clicks", key="id", value=RecordSchema.of(user=STRING))
USERS = Topic(name="users", key="id", value=RecordSchema.of(tier=STRING))
SESSIONS, ENRICHED = Topic(name="sessions", key="user"), Topic(name="enriched", key="user")

BY_USER = stream(CLICKS).select_key(user_id=col("user"))
TOPOLOGY = Topology(
    name="clicks",
    sinks=[
        BY_USER.windowed_by(session("30 min", grace="0 s", max_duration="1 d"))
        .aggregate(clicks=count())
        .emit_final()
        .to(SESSIONS),
        BY_USER.left_join_table(table(USERS)).filter(col("tier") != "<none>").to(ENRICHED),
    ],
)


def test_every_operator_has_one_line_and_names_what_it_reads() -> None:
    assert describe(TOPOLOGY).splitlines() == [
        "stream clicks",
        "  1. source clicks",
        "  2. select key user_id = user  <- 1",
        "  3. clicks = count() per user_id, session gap 30 min, at most 1 d, grace 0 ms, emit final  <- 2",
        "  4. sink sessions, table sessions  <- 3",
        "  5. source users",
        "  6. table  <- 5",
        "  7. left join with table, history 400 d  <- 2, 6",
        "  8. filter (tier != '<none>')  <- 7",
        "  9. sink enriched, table enriched  <- 8",
    ]


def test_the_diagram_has_an_edge_for_every_input_and_escapes_its_labels() -> None:
    lines = mermaid(TOPOLOGY).splitlines()
    assert lines[0] == "flowchart TD"
    assert '  n1[("source clicks")]' in lines
    assert {"  n2 --> n7", "  n6 --> n7"} <= set(lines)
    assert "  n8[\"filter (tier != '#lt;none#gt;')\"]" in lines
