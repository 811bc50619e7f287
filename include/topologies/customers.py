"""Customers and users: orders with their customer, what each has ordered, accounts. Rows S2, S8, S9, S12, S20."""

from decimal import Decimal

from recount import (
    STRING,
    Archive,
    RecordSchema,
    Topic,
    Topology,
    coalesce,
    col,
    count,
    decimal,
    largest,
    last,
    session,
    smallest,
    stream,
    table,
    total,
    when,
)
from topologies.orders import orders

customers = Topic(
    name="customers",
    key="customer_id",
    value=RecordSchema.of(
        customer_id=STRING,
        name=STRING,
        email=STRING,
        tier=STRING,
        segment=STRING,
        country=STRING,
        credit_limit=decimal(15, 2),
        required=("customer_id",),
    ),
    cleanup_policy="compact",
)

users = Topic(
    name="users",
    key="user_id",
    value=RecordSchema.of(user_id=STRING, name=STRING, email=STRING, tier=STRING, required=("user_id",)),
    cleanup_policy="compact",
)

customers_archive = Archive(topic=customers)
users_archive = Archive(topic=users)

_orders_by_customer = stream(orders).select_key(customer_id=col("customer_id"))

enriched_orders_by_customer = Topology(
    name="enriched-orders-by-customer",
    sinks=[
        _orders_by_customer.left_join_table(
            table(customers).select("email", "tier", "segment", "country", "credit_limit", customer_name=col("name"))
        )
        .with_fields(
            customer_name=coalesce(col("customer_name"), "UNKNOWN"),
            tier=coalesce(col("tier"), "unknown"),
            segment=coalesce(col("segment"), "Unknown"),
            country=coalesce(col("country"), "Unknown"),
            within_credit_limit=when(col("amount") <= col("credit_limit"), True, False),
            credit_limit=coalesce(col("credit_limit"), Decimal("0.00")),
        )
        .to(Topic(name="enriched-orders-by-customer", key="customer_id"))
    ],
)

customer_stats = Topology(
    name="customer-stats",
    sinks=[
        _orders_by_customer.aggregate(count=count(), total=total("amount")).to(
            Topic(name="customer-stats", key="customer_id", cleanup_policy="compact")
        )
    ],
)

high_spend_alerts = Topology(
    name="high-spend-alerts",
    sinks=[
        stream(orders)
        .in_order(grace="1 min")
        .select_key(customer_id=col("customer_id"))
        .aggregate(total=total("amount"), count=count())
        .to_stream()
        .filter(col("total") > 10_000)
        .to(Topic(name="high-spend-alerts", key="customer_id"))
    ],
)

order_summary = Topology(
    name="order-summary",
    sinks=[
        # A customer who has not ordered for 24 h begins anew.
        _orders_by_customer.windowed_by(session("24 h", grace="1 min"))
        .aggregate(
            count=count(),
            total=total("amount"),
            min=smallest("amount"),
            max=largest("amount"),
            # By (partition, offset): the orders of a customer lie in several partitions.
            last_order=last("order_id"),
        )
        .emit_each_batch()
        .to(Topic(name="order-summary", key="customer_id"))
    ],
)

_customers = table(customers).select("customer_id", "name", "email", "tier")
_users = table(users).select("user_id", user_name=col("name"), user_email=col("email"), user_tier=col("tier"))

customer_accounts = Topology(
    name="customer-accounts",
    sinks=[
        joined.to(Topic(name=name, key="customer_id", cleanup_policy="compact"))
        for name, joined in {
            "customer-accounts": _customers.join(_users),
            "customer-accounts-left": _customers.left_join(_users),
            "customer-accounts-outer": _customers.outer_join(_users),
        }.items()
    ],
)
