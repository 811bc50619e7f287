"""Flows from and to topics with plain values, and logs of them, to be held to the law by engine and recompute."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tests.unit.engine.engine import LogRecord
from tests.unit.engine.random_flows import Comparable
from tests.unit.engine.random_topologies import Drawn
from tests.unit.engine.random_topology_logs import CLOSING_MS, FUTURE_MS, Cut, Event

from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table, stream, table
from recount.declare.plain_values import PlainValue
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import tumbling

TEXTS = Topic(name="texts", key="id", value=PlainValue.of(text=STRING))
TIMES = Topic(name="times", key="id", value=PlainValue.of(at=LONG), event_time="at")
RATIOS = Topic(name="ratios", key="id", value=PlainValue.of(ratio=DOUBLE))
FLAGS = Topic(name="flags", key="id", value=PlainValue.of(flag=BOOLEAN))
PRICES = Topic(name="table", key="id", value=PlainValue.of(price=decimal(9, 2)))
WAY = Topic(name="way", key="id", value=PlainValue.of(code=LONG))
VALUES: Mapping[str, tuple[bytes | None, ...]] = {
    "texts": (b"a", b"a", b"b", b"", b' "c" ', "é".encode(), b"\xff", b"12", None),
    "times": (b"3", b"12", b"27", b"40", b"-1", b"1.0", b"", b"5 ", b"%d" % FUTURE_MS, b"9223372036854775808", None),
    "ratios": (b"0.5", b"2", b"1e2", b"1e309", b"NaN", b'"1"', b"true", None),
    "flags": (b"true", b"false", b"True", b"1", b"", None),
    "table": (b"1.50", b"2", b"1e2", b"0.001", b'"3"', b"10000000", b"x", None),
}
"""By topic good values and bad ones."""
_CLOSING = {"texts": b"closing", "times": b"%d" % CLOSING_MS, "ratios": b"1", "flags": b"true", "table": b"1"}
SINGLE_LETTER = {"a": 1, "b": 2, "é": 3}


def _code(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"code": SINGLE_LETTER.get(row["text"])}


def _shouted() -> RecordStream:
    return stream(TEXTS).filter(~col("text").is_null()).with_fields(text=col("text").upper())


def _per_word() -> Table:
    return stream(TEXTS).select_key(word=col("text")).aggregate(n=count())


def _per_time() -> RecordStream:
    return stream(TIMES).windowed_by(tumbling("10 ms", grace="5 ms")).aggregate(n=count(), at=total("at")).emit_final()


EXACT = Comparable(exactness="rows", with_times=True, has_bounds=True)
LATEST = Comparable(exactness="latest", with_times=True, has_bounds=True)
FLOWS: Mapping[str, tuple[Any, PlainValue | None, Comparable]] = {
    "texts as they are": (lambda: stream(TEXTS), PlainValue.of(text=STRING), EXACT),
    "texts in JSON": (lambda: stream(TEXTS), None, EXACT),
    "texts shouted": (_shouted, PlainValue.of(text=STRING), EXACT),
    "a code for some texts": (lambda: stream(TEXTS).map(_code, code=LONG), PlainValue.of(code=LONG), EXACT),
    "codes on their way": (lambda: stream(TEXTS).map(_code, code=LONG).through(WAY), None, EXACT),
    "records per text": (_per_word, PlainValue.of(n=LONG), LATEST),
    "windows of times": (_per_time, None, EXACT),
    "times as they are": (lambda: stream(TIMES), PlainValue.of(at=LONG), EXACT),
    "ratios": (lambda: stream(RATIOS), PlainValue.of(ratio=DOUBLE), EXACT),
    "flags": (lambda: stream(FLAGS).filter(col("flag")), PlainValue.of(flag=BOOLEAN), EXACT),
    "prices of texts": (
        lambda: stream(TEXTS).left_join_table(table(PRICES)).select("price"),
        PlainValue.of(price=decimal(9, 2)),
        EXACT,
    ),
    "a table of prices": (lambda: table(PRICES).filter(col("price") > 1), PlainValue.of(price=decimal(9, 2)), LATEST),
}
"""By name a flow, the plain value that is written, if any, and what of the rows can be compared."""


def plain_topology(name: str, partitions: int = 2) -> Drawn:
    """The flow of that name as if it had been drawn."""
    flow, value, comparable = FLOWS[name]
    topology = Topology(name="plain", sinks=[flow().to(Topic(name="out", key="id", value=value))], idle_after="60 s")
    read = {source.topic.name: partitions for source in topology.sources}
    sinks = {node.topic.name: comparable for node in topology.written}
    return Drawn(topology=topology, partitions=read, sinks=sinks, any_order=False, idles=False)


def plain_log(drawn: Drawn, dice: random.Random, batches: int = 3) -> list[Cut]:
    """Records with good and bad values and times, cut into batches; a record in each partition closes all windows."""
    cuts = [Cut([_event(drawn, dice) for _ in range(8)], 0, dice.random() < 0.5) for _ in range(batches)]
    closing = [
        Event(topic, LogRecord(partition=p, timestamp_ms=CLOSING_MS, key=b"closing %d" % p, value=_CLOSING[topic]))
        for topic, many in drawn.partitions.items()
        for p in range(many)
    ]
    return [*cuts, Cut(closing)]


def _event(drawn: Drawn, dice: random.Random) -> Event:
    topic = dice.choice(sorted(drawn.partitions))
    key = dice.choice([b"a", b"b", b"b", None, b"\xff"])
    record = LogRecord(
        partition=int(key == b"b") % drawn.partitions[topic],
        timestamp_ms=dice.choice([0, 7, 20, -1, FUTURE_MS]),
        key=key,
        value=dice.choice(VALUES[topic]),
    )
    return Event(topic, record)
