"""Each operator by itself, and with those that change what it reads, is the interpreter on drawn logs and cuts.

The law of drawn topologies (test_topologies_are_the_interpreter.py) chains operators as dice fall; here none is missed.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.engine.by_hand import EXACT, LATEST, LEFT, drawn_by_hand
from tests.unit.engine.random_flows import TOPICS, Comparable
from tests.unit.engine.random_topology_logs import logs
from tests.unit.engine.topology_runs import assert_agree, by_engine, by_interpreter, revisions_count_up

from recount.declare.aggregates import (
    Aggregate,
    average,
    count,
    distinct,
    first,
    fold,
    largest,
    last,
    reduce,
    smallest,
    total,
)
from recount.declare.expressions import coalesce, col, lit, when
from recount.declare.flow import RecordStream, Table, cogroup, stream
from recount.declare.operators.nodes import KEY, EmissionKind, WindowedAggregate
from recount.declare.operators.processing import KeyState
from recount.declare.schema import BOOLEAN, LONG, STRING
from recount.declare.topics import Topic
from recount.declare.windows import Windows, all_time, hopping, last_n, session, sliding, tumbling

EXAMPLES = int(os.environ.get("LAW_EXAMPLES", "4"))
"""A longer run: ``LAW_EXAMPLES=1000 pytest --hypothesis-seed=1`` and the name of this file."""
Flow = RecordStream | Table
Row = Mapping[str, Any]
ROWS, ROW_PER_KEY = replace(EXACT, has_bounds=False), replace(LATEST, has_bounds=False)
UNTIMED = replace(ROW_PER_KEY, with_times=False)
keyed = LEFT.select_key(k=col("lw")).select("ln", "lw", "lb")
other = stream(TOPICS["right"]).select_key(k=col("rw")).select("rn", "rw")
named = LEFT.select_key(k=coalesce(col("lw"), "none")).select("ln", "lb")
rows = stream(TOPICS["table"]).select_key(k=col("tw")).select("tn", "tb")
versions = stream(TOPICS["versions"]).select_key(k=col("vw")).select("vn", "vb")

STEPS: Mapping[str, Flow] = {
    "filter": keyed.filter(col("ln") > 1),
    "filter that is never true": keyed.filter(col("ln").is_null() & lit(None)),
    "fields": keyed.with_fields(nothing=lit(None), ln=col("ln") * 2, one=lit(1)),
    "key": keyed.select_key(size=when(col("ln") > 1, "large", lit(None))),
    "map": keyed.select("ln").map(lambda row: {"odd": (row["ln"] or 0) % 2 == 1}, odd=BOOLEAN),
    "flat-map": keyed.flat_map(lambda row: [{"n": n} for n in range(row["ln"])], n=LONG, absent=STRING),
    "repartition": keyed.repartition(3).peek(lambda _: None),
    "through": keyed.through(Topic(name="between", key="k")).filter(col("ln") > 1),
    "merge of two topics": keyed.merge(other),
    "merge of two paths": keyed.filter(col("ln") > 1).merge(keyed.filter(col("lw").is_null())),
    "cogroup": cogroup(lefts=keyed, rights=other),
}
BOUNDS: Any = {"before": "5 ms", "after": "10 ms", "grace": "3 ms"}
part = named.filter(col("ln") > 1).select(m=col("ln"))
JOINS: Mapping[str, Flow] = {
    "inner join": keyed.join(other, **BOUNDS),
    "left join": keyed.left_join(other, **BOUNDS),
    "outer join": keyed.outer_join(other, **BOUNDS),
    "join of rows made of one record": keyed.flat_map(lambda row: [{"n": row["ln"]}] * 2, n=LONG).outer_join(
        other, **BOUNDS
    ),
    "join of rows some of which have no key": keyed.flat_map(lambda row: [{"w": row["lw"]}, {"w": None}], w=STRING)
    .select_key(k2=col("w"))
    .outer_join(other, **BOUNDS),
    "join with a part of itself": named.left_join(part, before="0 ms", after="10 ms", grace="0 ms"),
    "join of a join": named.left_join(part, **BOUNDS).outer_join(
        named.select(more=col("ln")), before="7 ms", after="0 ms", grace="2 ms"
    ),
}
SUMMED = fold("tn", initial=int, adder=lambda held, n: held + (n or 0), merger=operator.add, returns=LONG)
TABLES: Mapping[str, Flow] = {
    "table": rows.to_table(),
    "versioned table": versions.to_table(versioned=True),
    "filtered table": rows.to_table().filter(col("tn") > 1),
    "filtered versioned table": versions.to_table(versioned=True).filter(col("vn") > 1).with_fields(m=col("vn") * 2),
}
GROUPS: Mapping[str, Flow] = {
    "groups of a table": rows.to_table()
    .group_by(flag=when(col("tb"), "yes", "no"))
    .aggregate(
        rows=count(),
        many=count().only(col("tn") > 1),
        differing=distinct("tn"),
        sum=total("tn"),
        mean=average("tn"),
        least=smallest("tn"),
        first=first("tn"),
        last=last("tn"),
        folded=SUMMED,
    ),
    "groups of a part of a versioned table": versions.to_table(versioned=True)
    .filter(col("vn") > 0)
    .group_by(flag=when(col("vb"), "yes", "no"))
    .aggregate(rows=count(), sum=total("vn")),
    "held table": rows.to_table().emit_after("10 ms"),
    "held table of one row": rows.to_table().emit_after("10 ms", max_rows=1),
}
TABLE_JOINS: Mapping[str, Flow] = {
    "inner join of tables": rows.to_table().join(versions.to_table()),
    "left join of tables": rows.to_table().left_join(versions.to_table()),
    "outer join of tables": rows.to_table().outer_join(versions.to_table()),
    "outer join of versioned tables": rows.to_table(versioned=True).outer_join(versions.to_table(versioned=True)),
    "join of parts of versioned tables": rows.to_table(versioned=True)
    .filter(col("tn") > 1)
    .left_join(versions.to_table(versioned=True).filter(col("vn") > 0)),
}
found, found_versions = rows.to_table(), versions.to_table(versioned=True)
WAITING = "70 ms"
LOOKUPS: Mapping[str, Flow] = {
    "inner lookup": keyed.join_table(found),
    "left lookup": keyed.left_join_table(found),
    "lookup by an expression": LEFT.left_join_table(found, by=col("lw")),
    "lookup of a running total": keyed.left_join_table(rows.aggregate(tn=largest("tn"))),
    "inner lookup as of arrival": keyed.join_table(found, as_of="arrival"),
    "lookup as of arrival by an expression": LEFT.left_join_table(found, by=col("lw"), as_of="arrival"),
    "versioned lookup": keyed.left_join_table(found_versions),
    "lookup of a part of a versioned table": keyed.left_join_table(
        found_versions.filter(col("vn") > 1).with_fields(more=col("vn") + 1)
    ),
    "lookup with grace": keyed.left_join_table(found_versions, grace=WAITING),
    "lookup with grace, by an expression": LEFT.join_table(found, grace=WAITING, by=col("lw")),
    "lookup with a history": keyed.left_join_table(found, history="9 ms"),
    "lookup without a history": keyed.join_table(found, history="0 ms"),
    "lookup with a long history, by an expression": LEFT.left_join_table(found, by=col("lw"), history="40 ms"),
    "lookup with history and grace": keyed.left_join_table(found, grace=WAITING, history="9 ms"),
}


def counted(row: Row, state: KeyState) -> Iterable[Row]:
    """Counts, sets timers and now and then forgets: the order of records and timers shows."""
    n = state.remembered["n"] = state.remembered.get("n", 0) + 1
    if row["ln"] is not None:
        state.schedule(state.timestamp_ms + 5 * row["ln"])
    if n > 4:
        state.remembered.clear()
    return [{"n": n, "what": "record"}] * (n % 3)


def reminded(at_ms: int, state: KeyState) -> Iterable[Row]:
    n = state.remembered.get("n", 0)
    if at_ms % 3 == 0 and n < 3:
        state.schedule(at_ms + 7)
    if n == 2:
        state.remembered["n"] = 1
    return [{"n": n, "what": "timer"}]


REMEMBERING: Mapping[str, Flow] = {
    "first by offset": LEFT.deduplicate(KEY, horizon="8 ms"),
    "first by event time": keyed.deduplicate("lw", horizon="8 ms"),
    "first of a number": keyed.deduplicate(col("ln"), horizon="8 ms"),
    "first, then joined": named.deduplicate(when(col("lb"), "yes", "no"), horizon="8 ms").left_join(other, **BOUNDS),
    "in order": LEFT.in_order(grace="9 ms"),
    "running total in order": keyed.in_order(grace="9 ms").aggregate(n=count(), sum=total("ln")).to_stream(),
    "processor": LEFT.process(counted, on_timer=reminded, n=LONG, what=STRING),
    "processor in order": keyed.in_order(grace="9 ms").process(counted, n=LONG, what=STRING),
}


def joined(text: str, word: str | None) -> str:
    return f"{text}{word}"


AGGREGATES: Mapping[str, Aggregate] = {
    "records": count(),
    "flagged": count().only(col("lb")),
    "items": total("ln"),
    "amount": total("ld").only(col("lw") == "a"),
    "weight": total("lx"),
    "least": smallest("ld"),
    "greatest": largest("lw"),
    "mean": average("ld"),
    "mean_items": average("ln"),
    "first_word": first("lw"),
    "last_item": last("ln").only(col("lb")),
    "product": total(col("ld") * col("ld")),
    "latest": last("ld"),
    "words": distinct("lw"),
    "truths": distinct("lb"),
    "sketched_words": distinct("lw", sketch=True),
    "sketched_weights": distinct("lx", sketch=True),
    "sketched": distinct("ld", sketch=True),
}
FOLDS: Mapping[str, Aggregate] = {
    "reduced": reduce(coalesce(col("lw"), "-"), operator.add),
    "reduced_nulls": reduce("lw", operator.add),
    "largest": reduce(coalesce(col("ld"), Decimal("0.00")), max),
    "folded": fold("lw", initial=lambda: "0", adder=joined, merger=joined, returns=STRING).only(col("ln") != 2),
}
RAISING = fold("ln", initial=int, adder=lambda held, n: held + 10 // (n - 1), merger=operator.add, returns=LONG)
"""Raises for 1 and for null: the record is set aside, and only this fold passes over it."""
WINDOWS: Mapping[str, Windows] = {
    "tumbling": tumbling("10 ms", grace="3 ms"),
    "hopping": hopping("10 ms", advance="4 ms", grace="0 ms"),
    "sliding": sliding("6 ms", grace="4 ms"),
    "session": session("4 ms", grace="3 ms", reach="6 ms"),
    "short session": session("4 ms", grace="3 ms", max_duration="9 ms"),
    "all time": all_time(),
    "last n": last_n(3),
}
ENDLESS = {"all time", "last n"}


def windowed(flow: RecordStream, windows: str, kind: EmissionKind, /, **aggregates: Aggregate) -> RecordStream:
    table = flow.windowed_by(WINDOWS[windows]).aggregate(**aggregates)
    emit = {"final": table.emit_final, "each batch": table.emit_each_batch, "each record": table.emit_each_record}
    return emit[kind]()


def windows() -> Iterable[tuple[str, Flow, Comparable]]:
    by_word = LEFT.select_key(k=col("lw"))
    for name in WINDOWS:
        folds = {} if name == "all time" else FOLDS  # whose folds refuse keys in several partitions
        bounded = replace(EXACT, has_bounds=name not in ENDLESS)
        yield f"{name}, each record", windowed(by_word, name, "each record", records=count(), **folds), bounded
        yield f"{name}, each batch", windowed(by_word, name, "each batch", **AGGREGATES, **folds), bounded
        if name not in ENDLESS:
            sink = LATEST if "session" in name else EXACT
            yield f"{name}, final", windowed(by_word, name, "final", items=total("ln"), **folds), sink
        if name not in (
            "sliding",
            "short session",
            "last n",
        ):  # whose windows are known only later: there it fails the stream
            yield f"{name}, raising", windowed(LEFT, name, "each batch", n=RAISING, all=count()), bounded
    yield "a number as key", windowed(LEFT.select_key(k=col("ln")), "session", "each batch", n=count()), EXACT


CHAINS: tuple[tuple[str, EmissionKind, str, EmissionKind], ...] = (
    ("session", "final", "tumbling", "final"),
    ("short session", "final", "hopping", "final"),
    ("tumbling", "each batch", "session", "each batch"),
    ("hopping", "each record", "sliding", "final"),
    ("sliding", "each batch", "last n", "each batch"),
    ("last n", "each batch", "tumbling", "each record"),
    ("all time", "each record", "short session", "each batch"),
    ("session", "each batch", "all time", "each batch"),
)
"""Windows over the results of windows: derived rows, in revisions, and withdrawn."""


def chained(above: str, above_kind: EmissionKind, below: str, kind: EmissionKind) -> RecordStream:
    text = last("lw") if above == "all time" else FOLDS["reduced"]
    results = windowed(keyed, above, above_kind, records=count(), text=text)
    texts = fold("text", initial=str, adder=joined, merger=joined, returns=STRING)
    folds = {} if below == "all time" else {"texts": texts}
    return windowed(results, below, kind, results=count(), sum=total("records"), last_text=last("text"), **folds)


FLOWS: Mapping[str, tuple[Flow, Comparable]] = {
    **{name: (flow, ROWS) for name, flow in {**STEPS, **JOINS, **TABLES, **LOOKUPS, **REMEMBERING}.items()},
    **{name: (flow, ROW_PER_KEY) for name, flow in GROUPS.items()},
    **{name: (flow, UNTIMED) for name, flow in TABLE_JOINS.items()},
    **{name: (flow, sink) for name, flow, sink in windows()},
    **{
        f"{below} over {above}": (chained(above, kind, below, then), replace(LATEST, has_bounds=below not in ENDLESS))
        for above, kind, below, then in CHAINS
    },
}
OF_WINDOWS = {name for name, (flow, _) in FLOWS.items() if isinstance(flow.node, WindowedAggregate)}
BY_KEY = {"first by offset", "processor", "all time, raising"}


@pytest.mark.parametrize("name", FLOWS)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_an_operator_is_the_interpreter_however_the_log_is_cut(name: str, data: st.DataObject) -> None:
    flow, sink = FLOWS[name]
    read = drawn_by_hand(flow, sink, {}).topology.sources
    drawn = replace(drawn_by_hand(flow, sink, {one.topic.name: 2 for one in read}), by_key=name in BY_KEY)
    cuts = data.draw(logs(drawn))
    said = by_engine(drawn, cuts)
    assert_agree(drawn, said, by_interpreter(drawn, cuts))
    assert name not in OF_WINDOWS or revisions_count_up(said.rows["out"])
