"""Sinks of payments, the same for each encoding."""

from __future__ import annotations

from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.operators.nodes import Sink
from recount.declare.topics import Encoding, Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling


def amounts_in(encoding: Encoding, payments: Topic) -> Topology:
    """A single aggregation, which has an audit of its own, of which values in ``encoding`` are written."""
    name = f"{encoding}-amounts"
    sink = Topic(name=name, key="customer", encoding=encoding, partitions=1, retention_ms=-1)
    return Topology(name=name, sinks=[amounts_to(sink, payments)])


def copied_in(encoding: Encoding, payments: Topic) -> Topology:
    """Some fields of each payment, written in ``encoding``."""
    sink = Topic(name=f"{encoding}-copies", key="payment_id", encoding=encoding, partitions=1, retention_ms=-1)
    copies = stream(payments).select("customer", "amount", "note", "at")
    return Topology(name=f"{encoding}-copied", sinks=[copies.to(sink)])


def amounts_to(sink: Topic, payments: Topic) -> Sink:
    """The payments of each customer and minute."""
    return (
        stream(payments)
        .select_key(customer=col("customer"))
        .windowed_by(tumbling("1 min", grace="0 s"))
        .aggregate(payments=count(), amount=total("amount"))
        .emit_final()
        .to(sink)
    )
