"""Cases of keys that are met in several partitions: a topic got more of them, or a second producer has another way.

A key ``k`` is in partition 2 first, and then in partition 0; the key ``CLOSING`` in all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.field.case import CLOSING, Case, Result, Sent, ending, record, source

from recount.declare.aggregates import count, last, reduce, total
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table, stream, table
from recount.declare.operators.nodes import KEY
from recount.declare.schema import LONG
from recount.declare.topics import Topic
from recount.declare.windows import tumbling

MOVED = [(2, 1_000, 1), (0, 2_000, 2), (2, 2_500, 3), (0, 3_000, 4)]
"""Partition, time and value of the records of k."""


def closing(name: str) -> list[Sent]:
    return [record(name, at_ms=9_000_000, key=CLOSING, partition=partition, n=0) for partition in range(3)]


def case(name: str, about: str, flow: Callable[[Topic], RecordStream | Table], **more: Any) -> Case:
    """k as it moved: its first record in one batch, all others in the next."""
    first, *others = (record(name, at_ms=at_ms, partition=partition, n=n) for partition, at_ms, n in MOVED)
    log = [[first], [*others, *closing(name)]]
    return Case(name=f"F4 {about}", topology=ending(name, flow(source(name, partitions=3, n=LONG))), log=log, **more)


def latest(name: str, **value: Any) -> dict[str, list[Result]]:
    return {name: [Result(key="k", value=value)]}


def remembered(row: Any, state: Any) -> list[dict[str, Any]]:
    """What was there before."""
    before, state.remembered["n"] = state.remembered.get("n"), row["n"]
    return [{"last": before}]


CASES: tuple[Case, ...] = (
    case("f4-table", "a table", lambda topic: table(topic).to_stream(), results=latest("f4-table", n=4)),
    case(
        "f4-first",
        "the first of each key",
        lambda topic: stream(topic).deduplicate(KEY, horizon="1 h"),
        results=latest("f4-first", n=1),
    ),
    case(
        # 1 h and a millisecond later k may come again, from wherever it is
        "f4-again",
        "the first of each key when its horizon has passed",
        lambda topic: stream(topic).deduplicate(KEY, horizon="1 s"),
        results={"f4-again": [Result(key="k", value={"n": 1}), Result(key="k", value={"n": 3})]},
        on_broker=False,
    ),
    case(
        "f4-versions",
        "a versioned table",
        lambda topic: table(topic, versioned=True).to_stream(),
        results=latest("f4-versions", n=4),
        on_broker=False,
    ),
    case(
        "f4-filtered",
        "the rows of a table that pass",
        lambda topic: table(topic).filter(col("n") > 3),
        results=latest("f4-filtered", n=4),
        on_broker=False,
    ),
    case(
        "f4-joined",
        "a join of a table with itself",
        lambda topic: table(topic).join(table(topic).select(m=col("n") * 10)),
        results=latest("f4-joined", n=4, m=40),
        on_broker=False,
    ),
    case(
        "f4-counted",
        "a total of all time",
        lambda topic: stream(topic).aggregate(records=count(), sum=total("n")).to_stream(),
        results=latest("f4-counted", records=4, sum=10),
        on_broker=False,
    ),
    case(
        "f4-above",
        "every update of a total",
        lambda topic: stream(topic).aggregate(sum=total("n")).to_stream().filter(col("sum") > 2),
        results={"f4-above": [Result(key="k", value={"sum": n}) for n in (3, 6, 10)]},
    ),
    case(
        # within a window the values are in the order of partition and offset, whatever was read when
        "f4-last",
        "the last value of a window",
        lambda topic: (
            stream(topic).windowed_by(tumbling("10 s", grace="0 s")).aggregate(n=count(), last=last("n")).emit_final()
        ),
        results={"f4-last": [Result(key="k", window=(0, 10_000), value={"n": 4, "last": 3})]},
        on_broker=False,
    ),
    case(
        "f4-in-order",
        "a table of records in order",
        lambda topic: stream(topic).in_order(grace="1 s").to_table().to_stream(),
        results=latest("f4-in-order", n=4),
        on_broker=False,
    ),
    case(
        "f4-folded",
        "a fold of all time",
        lambda topic: stream(topic).aggregate(sum=reduce("n", lambda one, other: one + other)).to_stream(),
        stops="a later one is in the lower partition",
    ),
    case(
        "f4-process",
        "a processor",
        lambda topic: stream(topic).process(remembered, last=LONG),
        stops="records of one key come from two partitions",
    ),
)
