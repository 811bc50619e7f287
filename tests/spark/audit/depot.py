"""A topology of the operators that the shop lacks: tables grouped and joined, outer joins, waiting, holding, timers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.spark.audit.conftest import MINUTE_MS
from tests.spark.audit.stage import Said, Stage, output_topic, settings_below, source_topic

from recount.declare.aggregates import count, total
from recount.declare.expressions import coalesce, col
from recount.declare.operators.nodes import Sink
from recount.declare.operators.processing import KeyState
from recount.declare.plain_values import PlainValue
from recount.declare.schema import DOUBLE, LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import tumbling
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project

SINKS = ("tiers", "contacts", "settled", "priced", "revenue", "reminders", "cities", "sold")
"""Their tables: groups of a table, an outer join of tables, one of streams, first orders of an item with the customer's
tier when they were made, their revenue held back, what a processor with timers says of payments, and the cities of
addresses in capitals: from and to topics with plain values, under another key; and what has been sold of an item with
each order, in the order of event time."""

_PLAIN = {"cities": PlainValue.of(city=STRING)}


@dataclass(frozen=True, kw_only=True)
class Depot(Stage):
    """Four source topics, two partitions of orders, eight outputs."""

    def a_day(self, number: int = 0) -> None:
        """Two batches: people buy and pay, or do one of both; then two hours pass, and an order of eve comes late.

        Day ``number`` begins five hours after the one before it.
        """
        begins = number * DAY_MINUTES

        def say(*records: Said) -> None:
            self.produce([(kind, place, who, begins + minute, value) for kind, place, who, minute, value in records])

        say(*(_customer(who, 0, tier) for who, tier in _TIERS.items()))
        say(*(_address(who, 0, city) for who, city in (("abe", "Rome"), ("abu", "Oslo"), ("ada", "Bonn"))))
        say(("addresses", 0, "gus", 0, b"\xff"), ("addresses", 0, "gus", 0, None))
        say(_order("ada", 1, "pen"), _order("bob", 2, "ink"), _order("cy", 3, "pen"), _order("dee", 4, "cup"))
        self.run()
        say(_customer("dee", 3, "gold"), _customer("eve", 5, None), _address("bob", 5, "Kiel"))
        say(_payment("ada", 2), _payment("cy", 6), _payment("fay", 7), _payment("ada", 9))
        say(_order("eve", 6, "cap"), _order("dee", 14, "pen"), _order("bob", 15, "ink"))
        say(_customer("zoe", 120, "gold"), _address("zoe", 120, "Ulm"), _payment("zoe", 120))
        say(*(_order("zoe", 120, "hat", partition=partition) for partition in (0, 1)))
        say(_order("eve", 6.5, "fan"))
        self.run()


DAY_MINUTES = 300
_TIERS = {"ada": "founder", "bob": "patron", "cy": "tin", "dee": "tin", "eve": "gold"}


def _customer(who: str, minute: float, tier: str | None) -> Said:
    """A tier of None: the customer is deleted."""
    return ("customers", 0, who, minute, None if tier is None else {"tier": tier, "credit": 10})


def _address(who: str, minute: float, city: str) -> Said:
    return ("addresses", 0, who, minute, city.encode())


def _order(who: str, minute: float, item: str, partition: int | None = None) -> Said:
    place = sum(map(ord, who)) % 2 if partition is None else partition
    return ("orders", place, who, minute, {"item": item, "amount": 10.25})


def _payment(who: str, minute: float) -> Said:
    return ("payments", 0, who, minute, {"rate": 0.1 * minute})


def noticed(payment: Mapping[str, Any], state: KeyState) -> Iterator[Mapping[str, Any]]:
    """Counts a customer's payments, and asks to be reminded of each five minutes later; then raises for fay's."""
    state.remembered["payments"] = state.remembered.get("payments", 0) + 1
    state.schedule(state.timestamp_ms + 5 * MINUTE_MS)
    yield {"said": "paid", "payments": state.remembered["payments"], "paid_rate": payment["rate"]}
    if state.key == "fay":
        raise ValueError(f"unknown: {state.key}")


def reminded(at_ms: int, state: KeyState) -> Iterator[Mapping[str, Any]]:
    """Says how many payments there have been."""
    yield {"said": "reminder", "payments": state.remembered["payments"], "paid_rate": None}


def depot_of(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, root: Path, sinks: Sequence[str] = SINKS
) -> Depot:
    """A depot with topics of its own and its tables below ``root``; ``sinks`` are the tables that it has."""
    name = uuid.uuid4().hex[:8]
    orders = source_topic(f"orders-{name}", RecordSchema.of(item=STRING, amount=decimal(15, 2)), partitions=2)
    payments = source_topic(f"payments-{name}", RecordSchema.of(rate=DOUBLE))
    customers = source_topic(f"customers-{name}", RecordSchema.of(tier=STRING, credit=LONG))
    addresses = source_topic(f"addresses-{name}", PlainValue.of(city=STRING))
    outputs = {sink: output_topic(f"{sink}-{name}", _PLAIN.get(sink)) for sink in SINKS}
    topology = Topology(name=f"depot-{name}", sinks=_sinks(orders, payments, customers, addresses, outputs, sinks))
    return Depot(spark=spark, settings=settings_below(root, kafka, project), topology=topology).create_topics()


def _sinks(
    orders: Topic,
    payments: Topic,
    customers: Topic,
    addresses: Topic,
    outputs: Mapping[str, Topic],
    sinks: Sequence[str],
) -> list[Sink]:
    tiers = table(customers).group_by(tier=col("tier")).aggregate(customers=count(), credit=total("credit"))
    contacts = table(customers).outer_join(table(addresses))
    settled = stream(orders).outer_join(stream(payments), before="1 min", after="5 min", grace="2 min")
    priced = (
        stream(orders)
        .deduplicate("item", horizon="2 min")
        .left_join_table(table(customers, versioned=True), grace="1 min")
        .through(outputs["priced"], table="priced")
    )
    revenue = (
        priced.select_key(paying=coalesce(col("tier"), "none"))
        .windowed_by(tumbling("10 min", grace="1 min"))
        .aggregate(orders=count(), revenue=total("amount"))
        .emit_after("5 min")
    )
    reminders = stream(payments).process(noticed, on_timer=reminded, said=STRING, payments=LONG, paid_rate=DOUBLE)
    capitals = stream(addresses).filter(~col("city").is_null()).with_fields(city=col("city").upper()).peek(print)
    cities = capitals.select_key(home=col("city"))
    sold = (
        stream(orders)
        .in_order(grace="2 min")
        .select_key(item=col("item"))
        .aggregate(sold=count(), spent=total("amount"))
    )
    flows = {
        "tiers": tiers,
        "contacts": contacts,
        "settled": settled,
        "revenue": revenue,
        "reminders": reminders,
        "cities": cities,
        "sold": sold.to_stream().filter(col("sold") > 0),
    }
    return [flow.to(outputs[name], table=name) for name, flow in flows.items() if name in sinks]
