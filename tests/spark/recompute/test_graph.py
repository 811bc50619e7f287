"""The general recompute is the interpreter: every operator, on many random logs at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.recompute.graph_logs import (
    CITIES,
    EVENTS,
    OTHERS,
    OUT,
    USERS,
    drivers,
    frames,
    from_spark,
    interpreted,
    random_log,
    table_ends,
)

from recount.core.aggregates import average, count, distinct, first, fold, largest, last, reduce, smallest, total
from recount.core.expressions import col
from recount.core.flow import RecordStream, Table, cogroup
from recount.core.processing import KeyState
from recount.core.schema import LONG, STRING
from recount.core.topology import Topology, stream, table
from recount.core.windows import Windows, all_time, hopping, last_n, session, sliding, tumbling
from recount.recompute.graph.recomputed import Recomputed, recomputed

LOGS = 25


@dataclass(frozen=True, kw_only=True)
class Case:
    """A flow, and what about its output is compared."""

    name: str
    flow: RecordStream | Table
    streams: bool = False
    timed: bool = True
    tables_first: bool = False
    arrival: bool = False
    """Whether lookups see only what had been read of the table: ``table_ends``."""

    @property
    def topology(self) -> Topology:
        return Topology(name="law", sinks=[self.flow.to(OUT)])

    @property
    def topics(self) -> list[str]:
        return [source.topic.name for source in self.topology.sources]

    def logs(self) -> Sequence[Any]:
        return [random_log(number, self.topics, tables_first=self.tables_first) for number in range(LOGS)]


TEXT = fold("n", initial=str, adder=lambda text, n: f"{text}{n},", merger="{}|{}".format, returns=STRING)
ALL = {
    "records": count(),
    "vips": count().only(col("vip")),
    "sum": total("amount"),
    "rates": total("rate"),
    "mean": average("n"),
    "least": smallest("amount"),
    "most": largest("who"),
    "early": first("n"),
    "newest": last("amount"),
    "kinds": distinct("n"),
    "about": distinct("n", sketch=True),
    "text": TEXT,
    "longest": reduce("who", lambda one, other: max(one, other)),
}


def by_who() -> RecordStream:
    return stream(EVENTS).select_key(by=col("who"))


def windowed(windows: Windows) -> RecordStream:
    return by_who().windowed_by(windows).aggregate(**ALL).emit_final()


def latest(windows: Windows) -> RecordStream:
    return by_who().windowed_by(windows).aggregate(**ALL).emit_each_batch()


def watched(row: Any, state: KeyState) -> Any:
    state.remembered["seen"] = state.remembered.get("seen", 0) + 1
    state.schedule(state.timestamp_ms + 7)
    return [{"said": f"record {row['n']}", "seen": state.remembered["seen"]}] * (row["n"] % 3)


def rung(at_ms: int, state: KeyState) -> Any:
    if at_ms % 2:
        state.schedule(at_ms + 3)
    return [{"said": f"timer {at_ms}", "seen": state.remembered["seen"]}]


users, cities = partial(table, USERS), partial(table, CITIES)
halves = {"before": "5 ms", "after": "3 ms", "grace": "4 ms"}
sides = stream(EVENTS).select("n"), stream(OTHERS)
CASES = [
    Case(name="tumbling", flow=windowed(tumbling("10 ms", grace="5 ms"))),
    Case(name="hopping", flow=windowed(hopping("10 ms", advance="4 ms", grace="0 ms"))),
    Case(name="sliding", flow=windowed(sliding("6 ms", grace="4 ms"))),
    Case(name="session", flow=windowed(session("4 ms", grace="3 ms"))),
    Case(name="session cut", flow=windowed(session("4 ms", grace="3 ms", max_duration="9 ms"))),
    Case(name="all time", flow=latest(all_time())),
    Case(name="last n", flow=latest(last_n(3))),
    Case(
        name="stateless",
        flow=by_who()
        .filter(col("n") > 4)
        .with_fields(double=col("n") * 2)
        .flat_map(lambda row: [{"m": row["double"] + i} for i in range(row["n"] % 3)], m=LONG)
        .merge(by_who().select(m=col("n"))),
        streams=True,
    ),
    Case(name="inner join", flow=sides[0].join(sides[1], **halves), streams=True),
    Case(name="left join", flow=sides[0].left_join(sides[1], **halves), streams=True),
    Case(name="outer join", flow=sides[0].outer_join(sides[1], **halves), streams=True),
    Case(
        name="join of re-keyed streams",
        flow=by_who().select("n").outer_join(stream(OTHERS).select_key(to=col("whom")), **halves),
        streams=True,
    ),
    Case(name="table", flow=users()),
    Case(name="versioned table", flow=users(versioned=True)),
    Case(name="filtered table", flow=users().filter(col("score") > 4)),
    Case(name="filtered versioned table", flow=users(versioned=True).filter(col("score") > 4)),
    Case(
        name="regrouped table",
        flow=users().group_by(tier=col("tier")).aggregate(users=count(), sum=total("score"), early=first("score")),
    ),
    Case(name="tables joined", flow=users().join(cities()), timed=False),
    Case(name="tables left joined", flow=users().left_join(cities()), timed=False),
    Case(name="tables outer joined", flow=users(versioned=True).outer_join(cities()), timed=False),
    Case(name="suppressed table", flow=users().emit_after("5 ms")),
    Case(
        name="counts by size",
        flow=stream(EVENTS).aggregate(n=count(), top=largest("n")).group_by(top=col("top")).aggregate(keys=count()),
    ),
    Case(name="lookup", flow=sides[0].left_join_table(users()), streams=True, arrival=True),
    Case(
        name="lookup by an expression in a filtered table",
        flow=stream(EVENTS).select("n", "who").join_table(users().filter(col("score") > 3), by=col("who")),
        streams=True,
        arrival=True,
    ),
    Case(name="lookup after all", flow=sides[0].join_table(users()), streams=True, tables_first=True),
    Case(name="versioned lookup", flow=sides[0].left_join_table(users(versioned=True)), streams=True, arrival=True),
    Case(
        name="versioned lookup after all",
        flow=sides[0].join_table(users(versioned=True), grace="5 ms"),
        streams=True,
        tables_first=True,
    ),
    Case(name="first by event time", flow=stream(EVENTS).deduplicate("who", horizon="9 ms"), streams=True),
    Case(name="first by offset", flow=stream(EVENTS).deduplicate("__key", horizon="9 ms"), streams=True),
    Case(
        name="window of windows",
        flow=windowed(tumbling("10 ms", grace="5 ms"))
        .select_key(most=col("most"))
        .select("records")
        .windowed_by(tumbling("20 ms", grace="2 ms"))
        .aggregate(records=total("records"))
        .emit_final(),
    ),
    Case(
        name="window of a join",
        flow=sides[0]
        .join(sides[1], **halves)
        .windowed_by(sliding("6 ms", grace="4 ms"))
        .aggregate(n=count(), text=TEXT)
        .emit_final(),
    ),
    Case(
        name="windowed cogroup",
        flow=cogroup(events=stream(EVENTS).select("n"), others=stream(OTHERS).select("what"))
        .windowed_by(session("4 ms", grace="3 ms"))
        .aggregate(n=total("n").only(col("merged_from") == "events"), all=count())
        .emit_final(),
    ),
]


def run(spark: SparkSession, case: Case, **options: Any) -> Recomputed:
    logs = case.logs()
    ends = table_ends(logs) if case.arrival else None
    return recomputed(spark, case.topology, frames(spark, logs, case.topics), table_ends=ends, **options)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_recompute_is_the_interpreter(spark: SparkSession, case: Case) -> None:
    done = run(spark, case)
    expected, late, fates = Counter[Any](), Counter[Any](), Counter[Any]()
    for driver in drivers(case.topology, case.logs()):
        expected += interpreted(driver.outputs("out"), streams=case.streams, timed=case.timed)
        late += Counter(
            (
                one.topic,
                one.partition,
                one.offset,
                one.timestamp_ms,
                one.stream_time_ms,
                str(one.key),
                one.window_start,
                one.window_end,
                one.margin_ms,
            )
            for one in driver.late
        )
        fates += Counter({(at.topic, at.partition, at.offset, fate): 1 for at, fate in driver.fate_of.items()})
    key = case.flow.node.key
    try:
        assert from_spark(done.result("out"), key, streams=case.streams, timed=case.timed) == expected
        assert Counter(map(tuple, done.late.collect())) == late
        assert Counter(map(tuple, done.fates.collect())) == fates
    finally:
        done.release()
    assert expected
