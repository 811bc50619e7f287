"""Payments: matched with their orders (S19), totals by method and balances of orders (S16)."""

from decimal import Decimal

from recount import (
    STRING,
    RecordSchema,
    Topic,
    Topology,
    coalesce,
    cogroup,
    col,
    count,
    decimal,
    reduce,
    stream,
    total,
    tumbling,
    when,
)
from topologies.orders import orders

payments = Topic(
    name="payments",
    key="order_id",
    value=RecordSchema.of(
        payment_id=STRING,
        order_id=STRING,
        amount=decimal(15, 2),
        method=STRING,
        required=("payment_id", "order_id", "amount"),
    ),
)

_ordered = stream(orders).select("order_id", "amount")
_paid = stream(payments).select("payment_id", payment_method=col("method"))

matched_orders = Topology(
    name="matched-orders",
    sinks=[
        _ordered.join(_paid, before="5 min", after="5 min", grace="1 min")
        .with_fields(status="matched")
        .to(Topic(name="matched-orders", key="order_id"))
    ],
)

unpaid_orders = Topology(
    name="unpaid-orders",
    sinks=[
        _ordered.left_join(_paid, before="5 min", after="5 min", grace="1 min")
        .filter(col("payment_id").is_null())
        .select("order_id", "amount", status="unpaid")
        .to(Topic(name="unpaid-orders", key="order_id"))
    ],
)

orders_and_payments = Topology(
    name="orders-and-payments",
    sinks=[
        _ordered.outer_join(
            stream(payments).select(
                "payment_id", paid_order=col("order_id"), paid=col("amount"), payment_method=col("method")
            ),
            before="5 min",
            after="5 min",
            grace="1 min",
        )
        .select(
            "payment_id",
            "amount",
            "paid",
            "payment_method",
            order_id=coalesce(col("order_id"), col("paid_order")),
            status=when(
                col("payment_id").is_null(), "unpaid", when(col("order_id").is_null(), "not ordered", "matched")
            ),
        )
        .to(Topic(name="orders-and-payments", key="order_id"))
    ],
)


def _sum(one: Decimal, other: Decimal) -> Decimal:
    return one + other


method_totals = Topology(
    name="method-totals",
    sinks=[
        stream(payments)
        .select_key(method=coalesce(col("method"), "unknown"))
        .windowed_by(tumbling("1 h", grace="1 min"))
        .aggregate(payments=count(), paid=reduce("amount", _sum))
        .emit_final()
        .to(Topic(name="method-totals", key="method"))
    ],
)

order_balances = Topology(
    name="order-balances",
    sinks=[
        cogroup(
            orders=stream(orders).select_key(order_id=col("order_id")),
            payments=stream(payments).select_key(order_id=col("order_id")),
        )
        .windowed_by(tumbling("1 d", grace="1 h"))
        .aggregate(
            ordered=total("amount").only(col("merged_from") == "orders"),
            paid=total("amount").only(col("merged_from") == "payments"),
        )
        .emit_final()
        .to(Topic(name="order-balances", key="order_id"))
    ],
)
