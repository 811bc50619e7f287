"""Orders: routed, enriched and deduplicated; revenue and counts; the archive of the raw log. Rows S4 to S14 and S21."""

import logging

from recount import (
    BOOLEAN,
    STRING,
    Archive,
    PlainValue,
    RecordSchema,
    Topic,
    Topology,
    coalesce,
    col,
    count,
    decimal,
    stream,
    table,
    total,
    tumbling,
    when,
)

orders = Topic(
    name="orders",
    key="order_id",
    value=RecordSchema.of(
        order_id=STRING,
        customer_id=STRING,
        user_id=STRING,
        product=STRING,
        region=STRING,
        amount=decimal(15, 2),
        status=STRING,
        vip=BOOLEAN,
        required=("order_id", "amount"),
    ),
)

orders_archive = Archive(topic=orders)

windowed_revenue = Topic(name="windowed-revenue", key="region")

revenue_by_region = Topology(
    name="revenue-by-region",
    sinks=[
        stream(orders)
        .select_key(region=coalesce(col("region"), "UNKNOWN"))
        .windowed_by(tumbling("5 min", grace="5 s"))
        .aggregate(orders=count(), revenue=total("amount"))
        .emit_final()
        .to(windowed_revenue)
    ],
)

_high_value = stream(orders).filter(col("amount") > 100)

high_value_orders = Topology(
    name="high-value-orders",
    sinks=[
        _high_value.to(Topic(name="high-value-orders", key="order_id")),
        _high_value.with_fields(vip=True).to(Topic(name="vip-orders", key="order_id")),
    ],
)

enriched_orders = Topology(
    name="enriched-orders",
    sinks=[
        stream(orders)
        .with_fields(amount_tier=when(col("amount") > 100, "high", "standard"), needs_review=col("amount") > 500)
        .to(Topic(name="enriched-orders", key="order_id"))
    ],
)

product_revenue = Topology(
    name="product-revenue",
    retention="1 d",
    sinks=[
        stream(orders)
        .select_key(product=col("product"))
        # An hour is kept for a day, and until then every order of it counts.
        .windowed_by(tumbling("1 h", grace="23 h"))
        .aggregate(hourly_revenue=total("amount"))
        .emit_each_batch()
        .to(Topic(name="product-revenue", key="product"))
    ],
)

order_counts = Topology(
    name="order-counts",
    sinks=[
        stream(orders)
        .select_key(user_id=col("user_id"))
        .aggregate(orders=count())
        .to(Topic(name="order-counts", key="user_id", cleanup_policy="compact"))
    ],
)

region_counts = Topology(
    name="region-counts",
    sinks=[
        stream(orders)
        .select_key(region=coalesce(col("region"), "UNKNOWN"))
        .aggregate(orders=count())
        .to(Topic(name="region-counts", key="region", cleanup_policy="compact"))
    ],
)

_log = logging.getLogger(__name__)

order_texts = Topic(name="order-texts", key="order_id", value=PlainValue.of(text=STRING))

processed_orders = Topology(
    name="processed-orders",
    sinks=[
        stream(order_texts)
        .filter(~col("text").is_null())
        .with_fields(text=col("text").upper())
        .peek(lambda row: _log.debug("processed: %s", row["text"]))
        .to(Topic(name="processed-orders", key="order_id", value=PlainValue.of(text=STRING)))
    ],
)

orders_deduplicated = Topology(
    name="orders-deduplicated",
    sinks=[
        stream(orders).deduplicate("order_id", horizon="1 h").to(Topic(name="orders-deduplicated", key="order_id")),
        table(orders).to(Topic(name="orders-latest", key="order_id", cleanup_policy="compact")),
    ],
)
