"""Which topologies can be dealt out by key, and what becomes of rows without one."""

from __future__ import annotations

import polars as pl
import pytest

from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.schema import DOUBLE, LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import RecordStream, Topology, stream, table
from recount.declare.windows import all_time, session, tumbling
from recount.engine.exchange.graph_part import GraphPlan
from recount.engine.state.graph_state import parts_of

ORDERS = Topic(name="orders", key="user", value=RecordSchema.of(user=STRING, item=STRING, n=LONG, weight=DOUBLE))
USERS = Topic(name="users", key="user", value=RecordSchema.of(city=STRING))
OUT = Topic(name="out", key="key")


def orders() -> RecordStream:
    return stream(ORDERS).select_key(user=col("user"))


def counted(flow: RecordStream) -> RecordStream:
    return flow.windowed_by(tumbling("1 s", grace="0 s")).aggregate(count=count()).emit_final()


DEALT = {
    "sessions": lambda: orders().windowed_by(session("1 s", grace="0 s")).aggregate(count=count()).emit_final(),
    "windows": lambda: counted(orders()),
    "all time": lambda: orders().windowed_by(all_time()).aggregate(count=count()).emit_each_batch(),
    "first of an id": lambda: stream(ORDERS).deduplicate(col("item"), horizon="1 s"),
    "windows of the first of the same key": lambda: counted(orders().deduplicate(col("user"), horizon="1 s")),
    "a table by the same key": lambda: orders().join_table(table(USERS).select("city")),
    "a table by another field": lambda: stream(ORDERS).join_table(table(USERS).select("city"), by=col("user")),
    "results by another key": lambda: counted(orders()).select_key(size=col("count")),
}
TOGETHER = {
    "first of an id, then by another key": lambda: counted(orders().deduplicate(col("item"), horizon="1 s")),
    "results grouped by another key": lambda: counted(counted(orders()).select_key(size=col("count"))),
    "in order": lambda: counted(orders().in_order(grace="1 s")),
    "ids that are no text": lambda: stream(ORDERS).deduplicate(col("weight"), horizon="1 s"),
    "a function": lambda: counted(orders().peek(print)),
    "a left lookup above what passes null keys over": lambda: counted(
        orders().left_join_table(table(USERS).select("city"))
    ),
}


def plan(flow: RecordStream) -> GraphPlan:
    return GraphPlan(topology=Topology(name="flow", sinks=[flow.to(OUT)]))


@pytest.mark.parametrize("name", DEALT)
def test_rows_that_go_together_by_one_value_are_dealt_out(name: str) -> None:
    assert plan(DEALT[name]()).dealing is not None


@pytest.mark.parametrize("name", TOGETHER)
def test_rows_that_go_together_by_two_values_stay_together(name: str) -> None:
    assert plan(TOGETHER[name]()).dealing is None


def test_no_release_deals_a_key_to_another_part() -> None:
    keys = pl.Series(["a", "b", None, "ключ", ""])
    assert parts_of(keys, 8).to_list() == [3, 1, 0, 2, 0]
    assert parts_of(pl.Series([1, -1, None]), 8).to_list() == parts_of(pl.Series(["1", "-1", None]), 8).to_list()
