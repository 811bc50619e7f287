"""A topology whose rows of every kind can be missed: sessions, an outer join, a table on a compacted topic."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.audit.stage import Said, Stage, output_topic, settings_below, source_topic

from recount.declare.aggregates import count, total
from recount.declare.schema import STRING, RecordSchema, decimal
from recount.declare.topology import Topology, stream
from recount.declare.windows import session
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project


@dataclass(frozen=True, kw_only=True)
class Kiosk(Stage):
    """Two source topics, two partitions of orders; ``visits``, ``settled`` and the ``board`` of last orders."""

    def a_day(self) -> None:
        """An hour passes; then an order of ada comes that lies between two of her visits, cy's payment, fay's order."""
        self.produce([_order("ada", 1), _order("bob", 2), _order("cy", 4), _order("ada", 6), _payment("bob", 3)])
        self.an_hour_later(1)
        self.produce([_order("ada", 3.5), _payment("cy", 5), _order("fay", 7)])
        self.run()

    def an_hour_later(self, hour: int) -> None:
        """Everything before is read, and closed."""
        self.produce([_order("zoe", 60 * hour, partition=partition) for partition in (0, 1)])
        self.produce([_payment("zoe", 60 * hour)])
        self.run()

    def orders(self, *orders: tuple[str, float]) -> None:
        """Orders of these people at these minutes."""
        self.produce([_order(who, minute) for who, minute in orders])


def _order(who: str, minute: float, partition: int | None = None) -> Said:
    place = sum(map(ord, who)) % 2 if partition is None else partition
    return ("orders", place, who, minute, {"item": f"{who}'s", "amount": 10.25})


def _payment(who: str, minute: float) -> Said:
    return ("payments", 0, who, minute, {"method": "card"})


def kiosk_of(spark: SparkSession, kafka: EmbeddedKafka, project: Project, root: Path) -> Kiosk:
    """A kiosk with topics of its own and its tables below ``root``."""
    name = uuid.uuid4().hex[:8]
    orders = source_topic(f"orders-{name}", RecordSchema.of(item=STRING, amount=decimal(15, 2)), partitions=2)
    payments = source_topic(f"payments-{name}", RecordSchema.of(method=STRING))
    visits, settled, board = (output_topic(f"{sink}-{name}") for sink in ("visits", "settled", "board"))
    seen = stream(orders).windowed_by(session("3 min", grace="1 min")).aggregate(orders=count(), spent=total("amount"))
    paid = stream(orders).left_join(stream(payments), before="0 s", after="5 min", grace="1 min")
    last = stream(orders).in_order(grace="1 min").to_table()
    sinks = [
        seen.emit_final().to(visits, table="visits"),
        paid.to(settled, table="settled"),
        last.to(replace(board, cleanup_policy="compact"), table="board"),
    ]
    topology = Topology(name=f"kiosk-{name}", sinks=sinks)
    return Kiosk(spark=spark, settings=settings_below(root, kafka, project), topology=topology).create_topics()
