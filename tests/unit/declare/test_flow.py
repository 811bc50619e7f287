"""The fluent API: what it refuses, and what a declaration knows of itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

import pytest

from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.flow import RecordStream
from recount.declare.operators.nodes import KEY
from recount.declare.plain_values import PlainValue
from recount.declare.registry import declared
from recount.declare.schema import DOUBLE, LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import all_time, tumbling
from recount.runtime.errors import InvalidDeclaration, Terminal

ORDERS = Topic(name="orders", key="order_id", value=RecordSchema.of(order_id=STRING, amount=LONG))
PAYMENTS = Topic(name="payments", key="order_id", value=RecordSchema.of(amount=LONG))
OUT = Topic(name="order-totals", key="order_id")
TEN_S = tumbling("10 s", grace="0 s")
PLAIN = Topic(name="plain", key="order_id", value=PlainValue.of(amount=LONG))


@pytest.mark.parametrize(
    ("declare", "field"),
    [
        (lambda: stream(ORDERS).filter(col("amount")), "filter"),
        (lambda: stream(ORDERS).filter(col("amuont") > 1), "column"),
        (lambda: stream(ORDERS).select_key(), "key"),
        (lambda: stream(ORDERS).select_key(a=col("amount"), b=col("amount")), "key"),
        (lambda: stream(ORDERS).windowed_by(all_time()).aggregate(n=count()).emit_final(), "emission"),
        (lambda: stream(ORDERS).windowed_by(tumbling("1 s", grace="0 s")).aggregate().emit_final(), "aggregates"),
        (lambda: stream(ORDERS).aggregate(window_start=count()), "names of aggregates"),
        (lambda: stream(ORDERS).select_key(amount=col("amount")).merge(stream(PAYMENTS)), "merge"),
        (lambda: stream(ORDERS).repartition(0), "repartition"),
        (lambda: table(ORDERS).group_by(tier=col("order_id")).aggregate(), "aggregates"),
        (lambda: stream(ORDERS).join(stream(PAYMENTS), before="1 s", after="1 s", grace="1 s"), "join"),
        (lambda: stream(ORDERS).select_key(n=col("amount")).join_table(table(PAYMENTS)), "join key"),
        (lambda: stream(ORDERS).join_table(table(PAYMENTS), by=col("amount")), "by of a lookup"),
        (lambda: RecordSchema.of(amount=int), "fields"),  # type: ignore[arg-type]
        (lambda: RecordSchema.of(amount=decimal), "fields"),  # type: ignore[arg-type]
        (lambda: RecordSchema(fields={1: LONG}), "fields"),  # type: ignore[dict-item]
        (lambda: stream(ORDERS).to(PLAIN), "sink plain"),
        (lambda: stream(ORDERS).select(amount=col("order_id")).to(PLAIN), "sink plain"),
        (lambda: stream(ORDERS).select(n=col("amount")).to(PLAIN), "sink plain"),
        (lambda: stream(ORDERS).select().to(PLAIN), "sink plain"),
        (lambda: stream(ORDERS).through(PLAIN), "sink plain"),
        (lambda: stream(ORDERS).windowed_by(TEN_S).aggregate(amount=count()).emit_final().to(PLAIN), "sink plain"),
        (lambda: stream(ORDERS).select("amount").select_key(amount=col("amount")).to(PLAIN), "sink plain"),
        (lambda: stream(ORDERS).deduplicate("nowhere", horizon="1 s"), "column"),
        (lambda: Topology(name="nothing"), "sinks"),
    ],
)
def test_a_declaration_that_cannot_mean_anything_is_refused_where_it_stands(
    declare: Callable[[], object], field: str
) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        declare()
    assert refused.value.field == field
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("outputs", "given"),
    [
        (("order-totals", "order-totals"), "order-totals"),
        (("a-b", "a.b"), "a_b"),
        (("orders",), "orders"),
        (("orders.dlq",), "orders.dlq"),
    ],
    ids=["one topic twice", "one table twice", "its own source", "its dead letters"],
)
def test_a_stream_writes_each_topic_and_table_once_and_none_that_it_reads(outputs: Sequence[str], given: str) -> None:
    sinks = [stream(ORDERS).to(Topic(name=name, key="order_id")) for name in outputs]
    with pytest.raises(InvalidDeclaration, match=given):
        Topology(name="copies", sinks=sinks)


def test_a_field_that_a_join_would_lose_to_the_key_of_the_left_side_is_refused() -> None:
    """It was left out without a word. One that repeats the key of its own record says the same as the key."""
    people = Topic(name="people", key="person", value=RecordSchema.of(customer=STRING, order=LONG))
    orders = stream(Topic(name="orders", key="order", value=RecordSchema.of(customer=STRING, amount=LONG)))
    by_customer = orders.select_key(customer=col("customer"))
    assert by_customer.join_table(table(people)).node.fields["customer"] == STRING
    assert by_customer.join_table(table(people), by=col("customer")).node.fields["order"] == LONG
    keyed = stream(people).select_key(n=col("order")).with_fields(customer_of=col("customer"))
    assert orders.select("amount").join_table(keyed.to_table(), by=col("amount"))
    by_amount = orders.select_key(amount=col("amount"))
    amounts = stream(people).select_key(order=col("order")).with_fields(amount=col("customer"))
    for join in (
        lambda: orders.select_key(customer=col("customer")).join_table(table(people), by=col(KEY)),
        lambda: by_amount.join(amounts, before="1 s", after="1 s", grace="0 s"),
        lambda: by_amount.to_table().join(amounts.to_table()),
    ):
        with pytest.raises(InvalidDeclaration, match="on both sides"):
            join()


def test_two_streams_under_other_keys_are_joined_without_those_that_their_records_came_with() -> None:
    """The refusal named a field that nobody has declared, and that cannot be renamed."""
    orders, payments = (stream(topic).select_key(by=col("amount")) for topic in (ORDERS, PAYMENTS))
    with pytest.raises(InvalidDeclaration, match="the key that the record came with") as refused:
        orders.join(payments, before="1 s", after="1 s", grace="0 s")
    assert "leave it out: .select(" in refused.value.remedy
    kept = orders.select("order_id"), payments.select(paid=col("amount"))
    assert kept[0].join(kept[1], before="1 s", after="1 s", grace="0 s")


def test_a_topic_that_is_read_under_two_declarations_is_refused_unless_they_say_the_same() -> None:
    """Records were decoded by one of them: what the other has beside it was null, or missing where a flow read it."""

    def both(fields: RecordSchema) -> Topology:
        again = Topic(name="orders", key="order_id", value=fields)
        sinks = [stream(ORDERS).to(OUT), stream(again).to(Topic(name="others", key="order_id"))]
        return Topology(name="both", sinks=sinks)

    with pytest.raises(InvalidDeclaration, match="two declarations of orders"):
        both(RecordSchema.of(region=STRING))
    assert both(RecordSchema.of(order_id=STRING, amount=LONG)).sources


def test_an_archive_is_told_from_a_stream_that_is_not_declared() -> None:
    shop = declared("topologies.orders")
    with pytest.raises(Terminal, match="archive") as refused:
        shop.topology("archive-orders")
    assert "archive-orders" not in refused.value.expected
    with pytest.raises(Terminal, match="no such stream"):
        shop.topology("archive-order")


LONGS = RecordSchema.of(amount=LONG, required=("amount",))
WANTED = {
    "another type": (stream(ORDERS).select(amount=col("order_id")), LONGS, "amount: string"),
    "a required field that no row has": (stream(ORDERS).select("order_id"), LONGS, "no amount"),
    "more places": (
        stream(ORDERS).select(amount=col("amount") * Decimal("0.001")),
        RecordSchema.of(amount=decimal(9, 2)),
        "decimal(38, 3)",
    ),
    "a part of a number": (stream(ORDERS).select(amount=col("amount") / 2), LONGS, "amount: double"),
}


@pytest.mark.parametrize(("flow", "value", "given"), WANTED.values(), ids=WANTED)
def test_rows_that_nobody_could_read_as_the_topic_is_declared_are_refused(
    flow: RecordStream, value: RecordSchema, given: str
) -> None:
    read = Topic(name="amounts", key="order_id", value=value)
    for write in (flow.to, flow.through):
        with pytest.raises(InvalidDeclaration) as refused:
            write(read)
        assert refused.value.field == "sink amounts"
        assert given in str(refused.value.given)


def test_rows_that_a_declared_topic_can_hold_are_written_to_it() -> None:
    value = RecordSchema.of(amount=decimal(19, 2), share=DOUBLE, other=STRING, required=("amount",))
    flow = stream(ORDERS).select("amount", share=col("amount"), further=1)
    assert flow.to(Topic(name="amounts", key="order_id", value=value)).topic.value == value


def test_a_filter_on_the_topics_key_keeps_deduplication_by_offset() -> None:
    def partitioned(flow: RecordStream) -> bool:
        return bool(flow.deduplicate(KEY, horizon="1 s").node.partitioned)  # type: ignore[union-attr]

    assert partitioned(stream(ORDERS).filter(col("amount") > 1))
    assert not partitioned(stream(ORDERS).with_fields(amount=1))


def test_a_plain_value_takes_rows_with_exactly_its_field_whatever_their_key_is() -> None:
    amounts = stream(ORDERS).select("amount")
    for flow in (amounts, amounts.select_key(by=col("amount")), stream(ORDERS).aggregate(amount=count())):
        assert flow.to(PLAIN).topic.plain_field == "amount"
    assert "amount" in amounts.through(PLAIN).node.fields
    with pytest.raises(InvalidDeclaration) as refused:
        stream(ORDERS).to(PLAIN)
    assert (refused.value.given, "amount: long" in refused.value.expected) == ("order_id: string, amount: long", True)
