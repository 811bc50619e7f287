"""A topology of many operators on a real broker: orders with their customer, joined with payments, and visits of it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.audit.stage import Said, Stage, Written, output_topic, settings_below, source_topic

from recount.declare.aggregates import count, total
from recount.declare.schema import DOUBLE, STRING, RecordSchema, decimal
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import session
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project

CUSTOMERS = ("ada", "bob", "cy", "dee", "eve")


@dataclass(frozen=True, kw_only=True)
class Shop(Stage):
    """Paid orders (a stream's rows) and visits (sessions): two sinks, three source topics, two partitions of orders."""

    @property
    def paid(self) -> Written:
        return self.written("paid")

    @property
    def visits(self) -> Written:
        return self.written("visits")

    def a_day(self, *, late: bool = False) -> None:
        """Each customer buys, moves up a tier and pays; then an hour passes, and ``late`` an order of eve comes."""
        self.produce([("customers", 0, who, 0, {"tier": "tin"}) for who in CUSTOMERS])
        self.produce([_order(who, 1 + number) for number, who in enumerate(CUSTOMERS)])
        self.run()
        self.produce([("customers", 0, who, 1, {"tier": "gold"}) for who in CUSTOMERS])
        self.produce([("payments", 0, who, 2 + number, {"rate": 0.1 * number}) for number, who in enumerate(CUSTOMERS)])
        self.produce([_order("ada", 8), _order("bob", 9), ("payments", 0, "ada", 9, {"rate": 0.7})])
        self.produce([_order("zoe", 60, partition=partition) for partition in (0, 1)])
        self.produce([("payments", 0, "yan", 60, {"rate": 1.0})])
        if late:
            self.produce([_order("eve", 6.5)])
        self.run()


def _order(who: str, minute: float, partition: int | None = None) -> Said:
    place = sum(map(ord, who)) % 2 if partition is None else partition
    return ("orders", place, who, minute, {"amount": 10.25})


def shop_of(spark: SparkSession, kafka: EmbeddedKafka, project: Project, root: Path) -> Shop:
    """A shop with topics of its own and its tables below ``root``."""
    shop = uuid.uuid4().hex[:8]
    orders = source_topic(f"orders-{shop}", RecordSchema.of(amount=decimal(15, 2)), partitions=2)
    payments = source_topic(f"payments-{shop}", RecordSchema.of(rate=DOUBLE))
    customers = source_topic(f"customers-{shop}", RecordSchema.of(tier=STRING))
    paid, visits = (output_topic(f"{name}-{shop}") for name in ("paid", "visits"))
    joined = (
        stream(orders)
        .left_join_table(table(customers), as_of="arrival")
        .join(stream(payments), before="1 min", after="5 min", grace="2 min")
        .select("amount", "tier", "rate")
    )
    seen = joined.windowed_by(session("3 min", grace="1 min")).aggregate(
        orders=count(), revenue=total("amount"), rates=total("rate")
    )
    topology = Topology(
        name=f"shop-{shop}",
        sinks=[joined.to(paid, table="paid"), seen.emit_final().to(visits, table="visits")],
    )
    return Shop(spark=spark, settings=settings_below(root, kafka, project), topology=topology).create_topics()
