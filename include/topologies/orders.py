"""Orders: revenue by region (S14), and the archive of the raw log."""

from recount.core.aggregates import count, total
from recount.core.archive import Archive
from recount.core.expressions import coalesce, col
from recount.core.schema import BOOLEAN, STRING, RecordSchema, decimal
from recount.core.topics import Topic
from recount.core.topology import Topology, stream
from recount.core.windows import tumbling

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
        .windowed_by(tumbling("5 min", grace="60 s"))
        .aggregate(orders=count(), revenue=total("amount"))
        .emit_final()
        .to(windowed_revenue)
    ],
)
