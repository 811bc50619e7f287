"""The general recompute is the interpreter: every operator, on many random logs at once."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.recompute.graph_logs import (
    CITIES,
    END_MS,
    EVENTS,
    OTHERS,
    OUT,
    USERS,
    Arrival,
    Log,
    drivers,
    frames,
    from_spark,
    interpreted,
    random_log,
    table_ends,
)
from tests.unit.engine.topology_runs import text_of

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
from recount.declare.columns import RESULT_TIME
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table, cogroup
from recount.declare.operators.nodes import KEY
from recount.declare.operators.processing import KeyState
from recount.declare.schema import LONG, STRING
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import Windows, all_time, hopping, last_n, session, sliding, tumbling
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.operators.frontiers import BatchEnds
from recount.recompute.operators.log_order import NotRecomputable
from recount.recompute.operators.recomputed import recomputed
from recount.reference.records import Entry, LateRecord
from recount.reference.topology_driver import TopologyDriver

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
    partitions: int = 2

    @property
    def topology(self) -> Topology:
        return Topology(name="law", sinks=[self.flow.to(OUT)])

    @property
    def topics(self) -> list[str]:
        return [source.topic.name for source in self.topology.sources]

    def logs(self) -> Sequence[Any]:
        return [
            random_log(number, self.topics, partitions=self.partitions, tables_first=self.tables_first)
            for number in range(LOGS)
        ]


TEXT = fold("n", initial=str, adder=lambda text, n: f"{text}{n},", merger="{}|{}".format, returns=STRING)
ALL = {
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
    "longest": reduce("who", lambda one, other: max(one, other)),
}


def by_who() -> RecordStream:
    return stream(EVENTS).select_key(by=col("who"))


def windowed(windows: Windows, **aggregates: Aggregate) -> RecordStream:
    return by_who().windowed_by(windows).aggregate(records=count(), text=TEXT, **aggregates).emit_final()


def latest(windows: Windows) -> RecordStream:
    return by_who().windowed_by(windows).aggregate(records=count(), early=first("n"), text=TEXT).emit_each_batch()


def refuse(row: Any, n: int) -> None:
    """Raises for some records, at the end of a function that has changed and made something."""
    if row["n"] == n:
        raise ValueError(f"{n} in {object()}")


def twice(row: Any) -> Any:
    refuse(row, 3)
    return [{"n": row["n"], "turn": turn} for turn in range(3)]


def numbered(row: Any, state: KeyState) -> Any:
    state.remembered["seen"] = state.remembered.get("seen", 0) + 1
    refuse(row, 5 * row["turn"])
    return [{"said": f"{row['n']} {row['turn']}", "seen": state.remembered["seen"]}]


def after_another(row: Any, state: KeyState) -> Any:
    said = f"{row['n']} after {state.remembered.get('n')}"
    state.remembered = {"n": row["n"], "seen": state.remembered.get("seen", 0) + 1}
    return [{"said": said, "seen": state.remembered["seen"]}]


def watched(row: Any, state: KeyState) -> Any:
    state.remembered["seen"] = state.remembered.get("seen", 0) + 1
    state.schedule(state.timestamp_ms + 7)
    refuse(row, 4)
    return [{"said": f"record {row['n']}", "seen": state.remembered["seen"]}] * (row["n"] % 3)


def rung(at_ms: int, state: KeyState) -> Any:
    if at_ms % 2:
        state.schedule(at_ms + 3)
    return [{"said": f"timer {at_ms}", "seen": state.remembered["seen"]}]


def refusing(text: str, n: int) -> str:
    refuse({"n": n}, 3)
    return f"{text}{n},"


REFUSING = fold("n", initial=str, adder=refusing, merger=lambda one, other: f"{one}+{other}", returns=STRING)
in_order = stream(EVENTS).in_order(grace="9 ms")
said = {"said": STRING, "seen": LONG}
turns = stream(EVENTS).flat_map(twice, n=LONG, turn=LONG)
dotted_events, N_S = stream(EVENTS).with_fields(**{"n.n": col("n"), "w.ho": col("who")}), total("n.n")
dotted = dotted_events.select_key(**{"by.whom": col("who")})
users, cities = partial(table, USERS), partial(table, CITIES)
halves = {"before": "5 ms", "after": "3 ms", "grace": "4 ms"}
sides = stream(EVENTS).select("n"), stream(OTHERS)
firsts = by_who().deduplicate("who", horizon="9 ms")
own_versions = by_who().to_table(versioned=True).select(m=col("n"))
# of what they find nothing is kept: a change of the table may come after the grace
waiting = by_who().left_join_table(own_versions, grace="5 ms").select("n", "who")
CASES = [
    Case(name="tumbling", flow=windowed(tumbling("10 ms", grace="5 ms"), **ALL)),
    Case(name="hopping", flow=windowed(hopping("10 ms", advance="4 ms", grace="0 ms", origin="3 ms"))),
    Case(name="sliding", flow=windowed(sliding("6 ms", grace="4 ms"))),
    Case(name="session", flow=windowed(session("4 ms", grace="3 ms", reach="6 ms"))),
    Case(name="session cut", flow=windowed(session("4 ms", grace="3 ms", max_duration="9 ms"))),
    Case(name="all time", flow=latest(all_time())),
    Case(name="running totals", flow=stream(EVENTS).aggregate(**ALL, records=count(), text=TEXT)),
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
        flow=stream(EVENTS).aggregate(n=count(), top=largest("who")).group_by(top=col("top")).aggregate(keys=count()),
    ),
    Case(name="lookup", flow=sides[0].left_join_table(users()), streams=True, arrival=True),
    Case(
        name="lookup by an expression in a filtered table",
        flow=stream(EVENTS).select("n", "who").join_table(users().filter(col("score") > 3), by=col("who")),
        streams=True,
        arrival=True,
    ),
    Case(
        name="lookup as of arrival",
        flow=sides[0].left_join_table(users(), as_of="arrival"),
        streams=True,
        arrival=True,
    ),
    Case(
        name="lookup in a table that is keyed anew",
        flow=stream(OTHERS).left_join_table(by_who().to_table().select(m=col("n")), by=col("whom")),
        streams=True,
        arrival=True,
    ),
    Case(name="lookup after all", flow=sides[0].join_table(users()), streams=True, tables_first=True),
    Case(
        name="lookup with a history", flow=sides[0].left_join_table(users(), history="9 ms"), streams=True, arrival=True
    ),
    Case(
        name="lookup with a history and a grace",
        flow=sides[0].join_table(users(versioned=True), grace="5 ms", history="20 ms"),
        streams=True,
        tables_first=True,
    ),
    Case(name="versioned lookup", flow=sides[0].left_join_table(users(versioned=True)), streams=True, arrival=True),
    Case(
        name="versioned lookup after all",
        flow=sides[0].join_table(users(versioned=True), grace="5 ms"),
        streams=True,
        tables_first=True,
    ),
    *(
        Case(name=f"names with dots, {name}", flow=flow, streams=name in {"first", "process"})
        for name, flow in {
            "session": dotted.windowed_by(session("4 ms", grace="3 ms")).aggregate(**{"te.xt": TEXT}).emit_final(),
            "sliding": dotted.windowed_by(sliding("6 ms", grace="4 ms")).aggregate(**{"n.s": N_S}).emit_final(),
            "first": dotted.deduplicate("w.ho", horizon="9 ms"),
            "process": dotted_events.process(watched, on_timer=rung, said=STRING, seen=LONG),
        }.items()
    ),
    Case(name="first by event time", flow=stream(EVENTS).deduplicate("who", horizon="9 ms"), streams=True),
    Case(name="first by offset", flow=stream(EVENTS).deduplicate("__key", horizon="9 ms"), streams=True),
    Case(
        name="first by offset, then windows",
        flow=stream(EVENTS)
        .deduplicate("__key", horizon="2 ms")
        .select_key(name=col("who"))
        .windowed_by(tumbling("10 ms", grace="0 ms"))
        .aggregate(records=count())
        .emit_final(),
    ),
    Case(
        name="processor",
        flow=stream(EVENTS).process(watched, on_timer=rung, said=STRING, seen=LONG),
        streams=True,
        partitions=1,
    ),
    *(
        Case(name=f"in order, then {name}", flow=flow, streams=True)
        for name, flow in {
            "a filter of running totals": in_order.select_key(by=col("who"))
            .aggregate(n=count(), sum=total("n"), text=TEXT)
            .to_stream()
            .filter(col("sum") > 30),
            "a processor": in_order.select_key(by=col("who")).process(after_another, **said),
            "windows": in_order.select_key(by=col("who"))
            .windowed_by(tumbling("10 ms", grace="5 ms"))
            .aggregate(n=count(), early=first("n"))
            .emit_final(),
            "a processor of two topics": stream(EVENTS)
            .select("n", who=col("who"))
            .merge(stream(OTHERS).select(n=col("what"), who=col("whom")))
            .in_order(grace="9 ms")
            .select_key(by=col("who"))
            .process(after_another, **said),
        }.items()
    ),
    Case(
        name="rows of one record whose ways parted behind a flat-map",
        flow=turns.filter(col("turn") > 0)
        .merge(turns.filter(col("turn") < 1))
        .process(numbered, said=STRING, seen=LONG),
        streams=True,
        partitions=1,
    ),
    Case(
        name="rows of one record whose ways parted before a flat-map",
        flow=turns.merge(stream(EVENTS).flat_map(twice, n=LONG, turn=LONG)).process(numbered, said=STRING, seen=LONG),
        streams=True,
        partitions=1,
    ),
    Case(
        name="held updates of windows",
        flow=by_who()
        .windowed_by(hopping("10 ms", advance="4 ms", grace="2 ms"))
        .aggregate(n=count())
        .emit_after("5 ms"),
    ),
    Case(
        name="windows of a flat-map, some of whose rows have no key",
        flow=stream(EVENTS)
        .flat_map(lambda row: [{"name": None}, {"name": row["who"]}] * (row["n"] % 2 + 1), name=STRING)
        .select_key(name=col("name"))
        .windowed_by(tumbling("10 ms", grace="1 ms"))
        .aggregate(n=count())
        .emit_final(),
    ),
    Case(
        name="a stream joined with itself",
        flow=by_who().select("n").left_join(by_who().select(m=col("n")), **halves),
        streams=True,
    ),
    Case(
        name="window of windows",
        flow=windowed(tumbling("10 ms", grace="5 ms"), most=largest("who"))
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
    *(
        Case(
            name=f"{windows} of a fold that raises",
            flow=by_who().windowed_by(windows).aggregate(text=REFUSING.only(col("n") > 0), all=count()).emit_final(),
        )
        for windows in (
            tumbling("10 ms", grace="2 ms"),
            hopping("10 ms", advance="4 ms", grace="2 ms"),
            session("4 ms", grace="3 ms"),
        )
    ),
    Case(name="all time of a fold that raises", flow=turns.aggregate(text=REFUSING, all=count())),
    Case(
        name="windowed cogroup",
        flow=cogroup(events=stream(EVENTS).select("n"), others=stream(OTHERS).select("what"))
        .windowed_by(session("4 ms", grace="3 ms"))
        .aggregate(n=total("n").only(col("merged_from") == "events"), all=count())
        .emit_final(),
    ),
    Case(
        name="first by event time, then sessions",
        flow=firsts.windowed_by(session("4 ms", grace="0 ms")).aggregate(n=count(), text=TEXT).emit_final(),
    ),
    Case(
        name="first by event time, merged with all of its topic",
        flow=firsts.merge(by_who().filter(col("n") > 4))
        .windowed_by(tumbling("10 ms", grace="1 ms"))
        .aggregate(n=count(), text=TEXT)
        .emit_final(),
    ),
    Case(
        name="first by event time, as a cogroup with all of its topic",
        flow=cogroup(firsts=firsts, events=by_who().filter(col("vip")))
        .windowed_by(sliding("6 ms", grace="1 ms"))
        .aggregate(n=count(), text=TEXT)
        .emit_final(),
    ),
    Case(
        name="first by event time, joined with all of its topic",
        flow=firsts.select("n").left_join(by_who().filter(col("vip")).select(m=col("n")), **halves),
        streams=True,
    ),
    Case(
        name="waiting for a table of the own topic, then sessions",
        flow=waiting.windowed_by(session("4 ms", grace="0 ms")).aggregate(n=count(), text=TEXT).emit_final(),
    ),
    Case(
        name="waiting for a table of the own topic, then first by event time, merged with all of its topic",
        flow=waiting.deduplicate("who", horizon="9 ms")
        .merge(by_who().select("n", "who"))
        .windowed_by(session("4 ms", grace="3 ms", max_duration="9 ms"))
        .aggregate(n=count(), text=TEXT)
        .emit_final(),
    ),
]


Bags = tuple[Mapping[str, Counter[Any]], Counter[Any], Counter[Any]]
"""What leaves by case, the late ledger and the fates."""


def together() -> Iterator[Sequence[Case]]:
    """The cases that read logs of one kind, a few in one topology: they share what is read of its topics."""
    alike: dict[tuple[Any, ...], list[Case]] = {}
    for case in CASES:
        alike.setdefault((case.tables_first, case.arrival, case.partitions), []).append(case)
    for cases in alike.values():
        yield from (cases[first : first + 8] for first in range(0, len(cases), 8))


def topology_of(cases: Sequence[Case]) -> Topology:
    """A sink for each case."""
    sinks = [case.flow.to(replace(OUT, name=f"out-{number}")) for number, case in enumerate(cases)]
    return Topology(name="law", sinks=sinks)


def logs_of(cases: Sequence[Case]) -> Sequence[Log]:
    """Logs of all topics that the cases read."""
    topics, [first, *_] = sorted({topic for case in cases for topic in case.topics}), cases
    return [
        random_log(
            number, topics, partitions=first.partitions, tables_first=first.tables_first, length=length_of(topics)
        )
        for number in range(LOGS)
    ]


def length_of(topics: Sequence[str]) -> int:
    """Enough records that rows of two topics meet."""
    return 30 if len(topics) == 1 else 20 * len(topics)


def by_the_recompute(spark: SparkSession, cases: Sequence[Case], **options: Any) -> Bags:
    logs, [first, *_] = logs_of(cases), cases
    ends = table_ends(logs) if first.arrival else None
    raw = frames(spark, logs, sorted({topic for case in cases for topic in case.topics}))
    done = recomputed(spark, topology_of(cases), raw, table_ends=ends, frontier_ms=END_MS, **options)
    try:
        found = {
            case.name: from_spark(
                done.result(f"out-{number}"), case.flow.node.key, streams=case.streams, timed=case.timed
            )
            for number, case in enumerate(cases)
        }
        return found, _bag(done.late), _bag(done.ledgers["fates"])
    finally:
        done.release()


def _bag(frame: Frame) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in frame.rows())


def by_the_interpreter(cases: Sequence[Case], logs: Sequence[Log]) -> Bags:
    """The same, log by log."""
    found, late, fates = {case.name: Counter[Any]() for case in cases}, Counter[Any](), Counter[Any]()
    for driver in drivers(topology_of(cases), logs):
        for number, case in enumerate(cases):
            said = driver.outputs(f"out-{number}")
            found[case.name] += interpreted(said, streams=case.streams, timed=case.timed)
        late += Counter(
            (*place_of(one), one.timestamp_ms, one.stream_time_ms, text_of(one.key), *bounds_of(one), one.margin_ms)
            for one in driver.late
        )
        fates += Counter((*place_of(at), fate) for at, fate in driver.fate_of.items())
    return found, late, fates


def place_of(one: LateRecord | Entry) -> tuple[str, int, int]:
    return one.topic, one.partition, one.offset


def bounds_of(one: LateRecord) -> tuple[int | None, int | None]:
    return one.window_start, one.window_end


@pytest.mark.parametrize("cases", together(), ids=lambda cases: f"{cases[0].name} to {cases[-1].name}")
def test_the_recompute_is_the_interpreter(spark: SparkSession, cases: Sequence[Case]) -> None:
    logs = logs_of(cases)
    results, late, fates = by_the_recompute(spark, cases)
    expected, expected_late, expected_fates = by_the_interpreter(cases, logs)
    for name, found in results.items():
        assert found and found == expected[name], name
    assert (late, fates) == (expected_late, expected_fates)


def test_with_unlimited_grace_nothing_is_late(spark: SparkSession) -> None:
    """And without it the late ledger, the fates and the results are others: the comparison is not blind."""
    name, case = CASES[0].name, CASES[0]
    found, late, fates = by_the_recompute(spark, [case], lateness=False)
    patient = replace(case, flow=windowed(tumbling("10 ms", grace="500 s"), **ALL))
    assert (found, late, fates) == by_the_interpreter([patient], logs_of([case]))
    impatient = by_the_interpreter([case], logs_of([case]))
    assert not late and impatient[1] and fates != impatient[2] and found[name] != impatient[0][name]


BESIDE = [one for one in CASES if one.name in ("join of re-keyed streams", "window of windows")]


def test_beside_a_recompute_with_lateness_one_without_finds_what_it_finds_alone(spark: SparkSession) -> None:
    raw = frames(spark, logs_of(BESIDE), ["events", "others"])
    truth = recomputed(spark, topology_of(BESIDE), raw, frontier_ms=END_MS)
    try:
        beside = by_the_recompute(spark, BESIDE, lateness=False, same_logs=truth)
    finally:
        truth.release()
    assert beside == by_the_recompute(spark, BESIDE, lateness=False)
    assert beside != by_the_recompute(spark, BESIDE)


def one_by_one(log: Log, topics: Sequence[str]) -> list[BatchEnds]:
    """Each record in a batch of its own, all partitions awake."""
    partitions = sorted({(one.topic, one.partition) for one in log if one.topic in topics})
    return [
        BatchEnds(
            ends={at: sum((one.topic, one.partition) == at for one in log[:end]) for at in partitions},
            awake=frozenset(partitions),
        )
        for end in range(1, len(log) + 1)
    ]


WAITING_LOG = [
    ("users", "u", {"tier": "tin", "score": 1}, 10),
    ("events", "u", {"n": 1}, 20),
    ("users", "u", {"tier": "gold", "score": 2}, 18),
    ("users", "x", {"tier": "tin", "score": 0}, 25),
    ("users", "u", {"tier": "late", "score": 3}, 19),
]
"""The event waits for 25 ms, by which time the user has gold; what is said of 19 ms afterwards comes too late."""


@pytest.mark.parametrize("grace", ["5 ms", None])
def test_item_1_7_what_came_after_a_record_had_looked_up_is_not_found_but_named(
    spark: SparkSession, grace: str | None
) -> None:
    log = [Arrival(topic=t, partition=0, key=k, value=v, timestamp_ms=at) for t, k, v, at in WAITING_LOG]
    flow = stream(EVENTS).select("n").left_join_table(users(), grace=grace)
    topology = Topology(name="law", sinks=[flow.to(OUT)])
    options = {"table_ends": table_ends([log]), "batches": one_by_one(log, ["events", "users"])}
    driver = TopologyDriver(topology)
    for one in log:
        driver.pipe(one.topic, key=one.key, value=one.value, timestamp_ms=one.timestamp_ms)
    [expected] = driver.read("out")
    raw = frames(spark, [log], ["events", "users"])
    done, complete = (recomputed(spark, topology, raw, lateness=lateness, **options) for lateness in (True, False))
    assert expected.value is not None and expected.value["tier"] == ("tin" if grace is None else "gold")
    assert [row["tier"] for row in done.result("out").rows()] == [expected.value["tier"]]
    assert [row["tier"] for row in complete.result("out").rows()] == ["late"]
    assert [(row["topic"], row["offset"], row["event_offset"]) for row in done.unread.rows()] == [("users", 3, 0)]
    assert complete.unread.is_empty()


@pytest.mark.parametrize(("batch", "tier"), [(2, "tin"), (3, "gold")])
def test_a_pair_looks_up_what_had_been_read_with_the_later_of_its_records(
    spark: SparkSession, batch: int, tier: str
) -> None:
    """The later side of the pair is read with ``batch``, counted from 0: before or after the table's second change."""
    values = [("users", {"tier": "tin"}), ("events", {"n": 1}), ("users", {"tier": "gold"})]
    values.insert(batch, ("others", {"what": 2}))
    log = [Arrival(topic=topic, partition=0, key="u", value=value, timestamp_ms=5) for topic, value in values]
    pairs = stream(EVENTS).join(stream(OTHERS), **halves)
    topology = Topology(name="law", sinks=[pairs.left_join_table(users()).to(OUT)])
    raw = frames(spark, [log], ["events", "others", "users"])
    done = recomputed(spark, topology, raw, table_ends=table_ends([log]), batches=one_by_one(log, list(raw)))
    assert [row["tier"] for row in done.result("out").rows()] == [tier]
    named = [(row["offset"], row["event_topic"], row["event_offset"]) for row in done.unread.rows()]
    assert named == ([(1, "events", 0)] if tier == "tin" else [])


@pytest.mark.parametrize(("time_ms", "late"), [(55, 0), (54, 1)])
def test_what_left_while_a_partition_was_idle_makes_its_record_late(
    spark: SparkSession, time_ms: int, late: int
) -> None:
    """Partition 1 is idle in the batch that brings the frontier to 60 ms."""
    at = [(0, 1), (1, 1), (0, 60), (1, time_ms)]
    log = [Arrival(topic="events", partition=p, key="u", value={"n": 1}, timestamp_ms=ms) for p, ms in at]
    both, idle = frozenset({("events", 0), ("events", 1)}), frozenset({("events", 0)})
    batches = one_by_one(log, ["events"])
    batches[0], batches[2] = replace(batches[0], awake=both), replace(batches[2], awake=idle)
    topology = Topology(name="law", sinks=[stream(EVENTS).in_order(grace="5 ms").to(OUT)])
    done = recomputed(spark, topology, frames(spark, [log], ["events"]), batches=batches)
    assert [(row["stream_time_ms"], row["margin_ms"]) for row in done.late.rows()] == [(60, 0)] * late


HISTORY = [
    *(("users", 0, {"tier": tier}, at) for tier, at in (("tin", 40), ("iron", 51), ("gold", 58))),
    *(("events", partition, {"n": 1}, at) for partition, at in ((0, 1), (1, 1), (0, 60), (1, 2))),
]
"""Partition 1 of the events is idle in the batch that brings the frontier to 60 ms, and comes back with 2 ms."""
LOOKUPS_OF_PLACED = {
    "records": stream(EVENTS).select("n"),
    "first ones": stream(EVENTS).select("n").deduplicate("n", horizon="0 ms"),
    "pairs": stream(EVENTS).select("n").join(stream(EVENTS).select(m=col("n")), before="0 s", after="0 s", grace="0 s"),
}


@pytest.mark.parametrize("rows", LOOKUPS_OF_PLACED)
@pytest.mark.parametrize(("history", "tier"), [("9 ms", "iron"), ("10 ms", "tin"), ("20 ms", "tin"), (None, None)])
def test_what_comes_from_a_partition_that_was_idle_looks_back_from_where_the_others_are(
    spark: SparkSession, rows: str, history: str | None, tier: str | None
) -> None:
    log = [Arrival(topic=t, partition=p, key="u", value=v, timestamp_ms=ms) for t, p, v, ms in HISTORY]
    both, idle = frozenset({("events", 0), ("events", 1), ("users", 0)}), frozenset({("events", 0)})
    batches = one_by_one(log, ["events", "users"])
    batches = [replace(one, awake=idle if number == 5 else both) for number, one in enumerate(batches)]
    flow = LOOKUPS_OF_PLACED[rows].left_join_table(users(), history=history)
    topology = Topology(name="law", sinks=[flow.to(OUT)])
    options = {"table_ends": table_ends([log]), "batches": batches}
    raw = frames(spark, [log], ["events", "users"])
    for lateness in (True, False):
        done = recomputed(spark, topology, raw, lateness=lateness, **options)
        found = {row[RESULT_TIME]: row["tier"] for row in done.result("out").rows()}
        assert found[2] == tier
        named = [(row["timestamp_ms"], row["stream_time_ms"], row["margin_ms"]) for row in done.late.rows()]
        is_late = lateness and history is not None and rows != "pairs"
        assert named == ([(2, 60, 60 - int(history.split()[0]) - 2 - 1)] if is_late else [])  # type: ignore[union-attr]


def test_what_has_won_stays_the_first_when_a_partition_that_was_idle_brings_an_earlier_record(
    spark: SparkSession,
) -> None:
    """The record of 58 ms is on time by its own partition; that of 60 ms had left while this partition was idle."""
    at = [(0, "z", 1), (1, "z", 1), (0, "a", 60), (0, "z", 90), (1, "a", 58), (0, "z", 200), (1, "z", 200)]
    log = [Arrival(topic="events", partition=p, key="u", value={"who": w, "n": 1}, timestamp_ms=t) for p, w, t in at]
    batches = one_by_one(log, ["events"])
    batches[2:4] = [replace(batch, awake=frozenset({("events", 0)})) for batch in batches[2:4]]
    topology = Topology(name="law", sinks=[stream(EVENTS).deduplicate("who", horizon="5 ms").to(OUT)])
    raw = frames(spark, [log], ["events"])
    for told, winner in ((batches, 60), (None, 58)):
        done = recomputed(spark, topology, raw, batches=told)
        assert [row[RESULT_TIME] for row in done.result("out").rows() if row["who"] == "a"] == [winner]
        named = {(row["partition"], row["offset"], row["event_partition"]) for row in done.unread.rows()}
        assert named == ({(1, 1, 0), (1, 1, 1)} if told else set())


per_ten = sides[0].windowed_by(tumbling("10 ms", grace="0 ms")).aggregate(last=last("n")).emit_final()
IDLE_JOINS = {
    "left": (sides[0].left_join(sides[1], **halves), 2),
    "outer": (sides[0].outer_join(sides[1], **halves), 2),
    "windows on the left": (per_ten.left_join(sides[1], **halves), 1),
    "windows without their end": (per_ten.select(last=col("last")).left_join(sides[1], **halves), 1),
    "windows on the right": (sides[1].left_join(per_ten.filter(col("last") >= 0), **halves), 1),
}
"""Joins, and how many partitions each topic has."""


@pytest.mark.parametrize("name", IDLE_JOINS)
def test_what_left_alone_stays_when_a_partition_that_was_idle_brings_its_partner(
    spark: SparkSession, name: str
) -> None:
    """As in the interpreter; and the complete result lacks only rows that a partner read too late explains."""
    flow, partitions = IDLE_JOINS[name]
    topology = Topology(name="law", sinks=[flow.to(OUT)])
    log, batches, driver = idling(topology, partitions, random.Random(1))
    raw = frames(spark, [log], ["events", "others"])
    done, complete = (recomputed(spark, topology, raw, lateness=late, batches=batches) for late in (True, False))
    options: Any = {"streams": True, "timed": True}
    truth, whole = (from_spark(one.result("out"), KEY, **options) for one in (done, complete))
    assert truth == interpreted(driver.outputs("out"), **options)
    unread, late = done.unread.number(), done.late.number()
    assert unread, "a row has left alone before its partner came"
    assert unread == (truth - whole).total() or (late and unread < (truth - whole).total())


def idling(
    topology: Topology, partitions: int, dice: random.Random
) -> tuple[list[Arrival], list[BatchEnds], TopologyDriver]:
    """A log of two topics whose partitions fall idle and go on where they were, its batches, and the interpreter."""
    driver = TopologyDriver(topology, partitions={"events": partitions, "others": partitions})
    at_ms = {(topic, partition): 0 for topic in ("events", "others") for partition in range(partitions)}
    awake, ends, log, batches = set(at_ms), dict.fromkeys(at_ms, 0), list[Arrival](), list[BatchEnds]()
    for _ in range(160):
        place = dice.choice(sorted(at_ms))
        topic, partition = place
        if dice.random() < 0.2 and awake - {place}:
            awake -= {place}
            driver.idle(topic, partition)
        else:
            awake |= {place}
            at_ms[place] += dice.choice([0, 1, 2, 4, 9])
            record = Arrival(
                topic=topic,
                partition=partition,
                key=dice.choice(["ac", "bd"][partition] if partitions > 1 else "ab"),
                value={"n": len(log), "what": len(log)},
                timestamp_ms=max(0, at_ms[place] - dice.choice([0, 0, 3])),
            )
            log.append(record)
            ends[place] += 1
            driver.pipe(
                **{name: getattr(record, name) for name in ("topic", "partition", "key", "value", "timestamp_ms")}
            )
        batches.append(BatchEnds(ends=dict(ends), awake=frozenset(awake)))
    return log, batches, driver


def test_a_first_of_results_of_windows_is_told_by_the_frontier_alone(spark: SparkSession) -> None:
    log = [
        Arrival(topic="events", partition=0, key="u", value={"who": "a", "n": 1}, timestamp_ms=at_ms)
        for at_ms in (1, 12, 200)
    ]
    flow = windowed(tumbling("10 ms", grace="0 ms")).deduplicate("by", horizon="50 ms")
    topology = Topology(name="law", sinks=[flow.to(OUT)])
    done = recomputed(spark, topology, frames(spark, [log], ["events"]), batches=one_by_one(log, ["events"]))
    assert [(row["by"], row[RESULT_TIME]) for row in done.result("out").rows()] == [("a", 1)]


@pytest.mark.parametrize(
    "flow",
    [
        by_who().to_table(),
        by_who().process(watched, on_timer=rung, said=STRING, seen=LONG),
        latest(all_time()).filter(col("records") > 1),
    ],
    ids=["unversioned table of a re-keyed stream", "processor of a re-keyed stream", "updates filtered"],
)
def test_what_is_no_function_of_the_log_is_refused(spark: SparkSession, flow: RecordStream | Table) -> None:
    case = Case(name="refused", flow=flow)
    with pytest.raises(NotRecomputable) as refused:
        recomputed(spark, case.topology, frames(spark, [random_log(0, ["events"])], ["events"]))
    assert refused.value.remedy


def test_functions_below_added_sinks_have_set_nothing_aside_before_these_began(spark: SparkSession) -> None:
    log = [Arrival(topic="events", partition=0, key="k", value={"n": 3}, timestamp_ms=at) for at in range(4)]
    added = stream(EVENTS).flat_map(twice, n=LONG, turn=LONG).filter(col("turn") > 0)
    topology = Topology(name="law", sinks=[stream(EVENTS).to(OUT), added.to(replace(OUT, name="new"))])
    batches = [BatchEnds(ends={("events", 0): end}, awake=frozenset({("events", 0)})) for end in (1, 2, 4)]
    raw = frames(spark, [log], ["events"])
    for done, letters in ({"new": 2}, [2, 3]), ({"new": 0}, [0, 1, 2, 3]):
        found = recomputed(spark, topology, raw, batches=batches, done_before=done).ledgers["rejected"]
        assert sorted(row["offset"] for row in found.rows()) == letters


def test_a_record_that_an_operator_holds_at_the_cut_waits(spark: SparkSession) -> None:
    log = [Arrival(topic="events", partition=0, key="u", value={"n": at}, timestamp_ms=at) for at in (1, 2, 200)]
    for flow in stream(EVENTS).in_order(grace="50 ms"), stream(EVENTS).deduplicate("n", horizon="50 ms"):
        topology = Topology(name="law", sinks=[flow.to(OUT)])
        done = recomputed(spark, topology, frames(spark, [log], ["events"]), batches=one_by_one(log, ["events"]))
        assert [row["fate"] for row in done.ledgers["fates"].sorted_by("offset").rows()] == [
            "counted",
            "counted",
            "waiting",
        ]
