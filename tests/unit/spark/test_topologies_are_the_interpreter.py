"""The engine is the interpreter: on random topologies and random logs, however the log is cut and whoever restarts."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, note, reject, settings
from hypothesis import strategies as st
from tests.unit.spark.engine import NOW_MS, LogRecord
from tests.unit.spark.random_topologies import TABLES, TOPICS, Comparable, Drawn, drawn_topologies
from tests.unit.spark.topology_engine import TopologyEngine

from recount.core.aggregates import count
from recount.core.describe import describe
from recount.core.expressions import col
from recount.core.flow import RecordStream, Table, stream
from recount.core.interpreter.driver import TopologyDriver
from recount.core.interpreter.sinks import Output
from recount.core.nodes import KEY, WINDOW_END, WINDOW_START, Sink
from recount.core.stateless import Through
from recount.core.topics import Topic
from recount.core.topology import Topology
from recount.core.windows import tumbling
from recount.spark.computation import IS_NULL
from recount.spark.open_windows import REVISION
from recount.spark.operators.operator import FATES
from recount.spark.partials import TIMESTAMP
from recount.spark.plan import NotExpressible
from recount.spark.stage import LATE_SCHEMA

CLOSING_MS, FUTURE_MS, IDLE_AFTER_MS = 100_000, 10_000_000, 60_000
"""When everything of the log is over; a time that is absurd; how long a partition is silent until it is idle."""
law = settings(
    max_examples=int(os.environ.get("LAW_EXAMPLES", "200")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
"""A longer run: ``LAW_EXAMPLES=5000 pytest --hypothesis-seed=1`` and the name of this file."""

Row = tuple[Any, ...]
"""Key, window, time, revision, value; see ``row_of``."""


@dataclass(frozen=True)
class Event:
    """A record of the topic ``topic``."""

    topic: str
    record: LogRecord


@dataclass(frozen=True)
class Cut:
    """A batch: its records, how much later it is planned than the one before, and whether the engine restarts first."""

    events: Sequence[Event]
    later_ms: int = 0
    restarts: bool = False


@dataclass
class Told:
    """What a run says about a log, to be compared: nothing in it depends on batches where ``drawn`` says so."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    late: Counter[Row] = field(default_factory=Counter)
    rejected: Counter[Row] = field(default_factory=Counter)
    fates: list[Mapping[Any, int]] = field(default_factory=list)


# ---- logs

BAD_VALUES = (b"{", b"[]", b'{"ln": "1", "rn": "1", "tn": "1", "vn": "1"}', b"\xff")


@st.composite
def events(draw: Any, drawn: Drawn) -> Event:
    """A record, now and then a bad one."""
    topic = draw(st.sampled_from(sorted(drawn.partitions)))
    key = draw(st.sampled_from([b"a", b"a", b"a", b"a", b"b", b"b", b"b", None, b"\xff"]))
    partition = int(key == b"b") if drawn.by_key else draw(st.integers(0, 2))
    return Event(
        topic,
        LogRecord(
            partition=partition % drawn.partitions[topic],
            timestamp_ms=draw(TIMES),
            key=key,
            value=draw(VALUES[topic]),
        ),
    )


def seldom(often: st.SearchStrategy[Any], rare: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """``rare`` once in ten times."""
    return st.integers(0, 9).flatmap(lambda n: rare if n == 9 else often)


TIMES = seldom(st.integers(0, 60), st.sampled_from([-1, 10, 20, FUTURE_MS]))


def values_of(letter: str) -> st.SearchStrategy[bytes | None]:
    """JSON of the topic whose fields begin with ``letter``; null values and what is no value at all."""
    fields: dict[str, st.SearchStrategy[Any]] = {
        "n": st.integers(0, 3) | st.none(),
        "w": st.sampled_from(["a", "a", "b", "b", None]),
        "x": st.sampled_from([0.5, 2.0, None]),
        "d": st.sampled_from([0.25, 1.5]),
        "b": st.booleans(),
    }
    at = TIMES if letter == "r" else st.none()
    whole = st.fixed_dictionaries({letter + name: value for name, value in {**fields, "at": at}.items()})
    good = whole.map(lambda value: json.dumps(value).encode())
    return seldom(good, st.none() | st.sampled_from(BAD_VALUES))


VALUES = {topic: values_of(topic[0]) for topic in ("left", "right", "table", "versions")}


@st.composite
def logs(draw: Any, drawn: Drawn) -> list[Cut]:
    """Batches of a log; the partitions become idle only where the topology's results do not depend on when."""
    # Hypothesis would draw short lists, in which little meets
    least = draw(st.sampled_from([0, 8, 16, 24]))
    log = draw(st.lists(events(drawn), min_size=least, max_size=least + 8))
    bounds = [0, *sorted(draw(st.lists(st.integers(0, len(log)), max_size=3))), len(log)]
    pauses = st.sampled_from([0, 0, IDLE_AFTER_MS] if drawn.idles else [0])
    cuts = [Cut(log[start:end], draw(pauses), draw(st.booleans())) for start, end in pairwise(bounds)]
    return [*cuts, closing(drawn.partitions)]


def closing(partitions: Mapping[str, int]) -> Cut:
    """A record in every partition after which all time of the log is over; its key is met nowhere else."""
    found = []
    for topic, many in partitions.items():
        for partition in range(many):
            word, letter = f"closing {topic} {partition}", topic[0]
            value = {"n": 2, "w": word, "x": 2.0, "d": 1.5, "b": True, "at": CLOSING_MS}
            text = json.dumps({letter + name: cell for name, cell in value.items()}).encode()
            found.append(
                Event(topic, LogRecord(partition=partition, timestamp_ms=CLOSING_MS, key=word.encode(), value=text))
            )
    return Cut(found)


# ---- runs


def row_of(key: Any, window: Row | None, timestamp_ms: int, revision: int, value: Mapping[str, Any] | None) -> Row:
    """A result to be compared, its values with their types, for 1 == 1.0 == Decimal(1)."""
    cells = None if value is None else tuple((name, type(cell).__name__, cell) for name, cell in value.items())
    return key, window, timestamp_ms, revision, cells


def by_engine(drawn: Drawn, cuts: Sequence[Cut]) -> Told:
    """What the engine says."""
    engine, told, now_ms = TopologyEngine(drawn.topology, drawn.partitions), Told(), NOW_MS
    for cut in cuts:
        if cut.restarts:
            engine.restart()
        now_ms += cut.later_ms
        by_topic = {topic: [one.record for one in cut.events if one.topic == topic] for topic in drawn.partitions}
        computed = engine.batch(by_topic, now_ms=now_ms)
        told.fates.append(
            {
                (place, fate.replace("_", " ")): getattr(proof, fate)
                for place, proof in computed.after.partitions.items()
                for fate in FATES
                if getattr(proof, fate)
            }
        )
        told.late.update(computed.late.select(list(LATE_SCHEMA)).rows())
        told.rejected.update(computed.rejected.select("topic", "partition", "offset", TIMESTAMP, "reason").rows())
    for node in sinks_of(drawn):
        told.rows[node.topic.name] = list(engine_rows(node, engine.emitted(node.table)))
    return told


def sinks_of(drawn: Drawn) -> list[Sink | Through]:
    return [node for node in drawn.topology.nodes() if isinstance(node, Sink | Through)]


def engine_rows(node: Sink | Through, emitted: pl.DataFrame) -> Iterable[Row]:
    for row in emitted.iter_rows(named=True):
        window = (row[WINDOW_START], row[WINDOW_END]) if WINDOW_START in node.fields else None
        value = None if row[IS_NULL] else {name: row[name] for name in node.fields if name != KEY}
        yield row_of(row[node.key], window, row[TIMESTAMP], row[REVISION], value)


def by_interpreter(drawn: Drawn, cuts: Sequence[Cut]) -> Told:
    """What the interpreter says: record by record as drawn, or where the order matters as the engine reads a batch."""
    driver, told, now_ms = TopologyDriver(drawn.topology, partitions=drawn.partitions), Told(), NOW_MS
    seen = 0
    for cut in cuts:
        now_ms += cut.later_ms
        driver.wall_clock_ms = now_ms
        if drawn.any_order:
            pipe(driver, cut.events)
        else:
            with driver.batch():
                pipe(driver, sorted(cut.events, key=reading_order))
        told.fates.append(
            Counter((e.source, f) for e, f in list(driver.fate_of.items())[seen:] if f != "dead-lettered")
        )
        seen = len(driver.fate_of)
        declare_idle(driver, drawn, cuts[: len(told.fates)])
    for sink in sinks_of(drawn):
        told.rows[sink.topic.name] = [interpreter_row(out) for out in driver.outputs(sink.topic.name)]
    told.late.update(
        tuple(str(getattr(row, name)) if name == "key" else getattr(row, name) for name in LATE_SCHEMA)
        for row in driver.late
    )
    told.rejected.update((b.topic, b.partition, b.offset, b.timestamp_ms, b.reason) for b in driver.dead_letters)
    return told


def pipe(driver: TopologyDriver, found: Iterable[Event]) -> None:
    for one in found:
        record = one.record
        driver.pipe(
            one.topic,
            key=record.key,
            value=record.value,
            timestamp_ms=record.timestamp_ms,
            partition=record.partition,
        )


def reading_order(event: Event) -> tuple[bool, str, int]:
    """Tables first, then topic by topic, partition by partition."""
    return event.topic not in TABLES, event.topic, event.record.partition


def declare_idle(driver: TopologyDriver, drawn: Drawn, cuts: Sequence[Cut]) -> None:
    """The partitions that no batch has read for long enough."""
    for topic, many in drawn.partitions.items():
        for partition in range(many):
            silent_ms = 0
            for cut in cuts:
                spoke = any((one.topic, one.record.partition) == (topic, partition) for one in cut.events)
                silent_ms = 0 if spoke or cut is cuts[0] else silent_ms + cut.later_ms
            if silent_ms >= IDLE_AFTER_MS:
                driver.idle(topic, partition)


def interpreter_row(out: Output) -> Row:
    return row_of(out.key, out.window, out.timestamp_ms, out.revision, out.value)


# ---- comparison


def comparable(rows: Sequence[Row], sink: Comparable, *, idles: bool) -> Any:
    """What of ``rows`` does not depend on batches."""
    if sink.exactness == "rows" and not (idles and sink.has_bounds):
        return Counter(rows)
    latest = {(key, window): (timestamp_ms, value) for key, window, timestamp_ms, _, value in rows}
    return {
        place: value if not sink.with_times else (timestamp_ms, value)
        for place, (timestamp_ms, value) in latest.items()
        if value is not None and not str(place[0]).startswith("closing")
    }


def assert_agree(drawn: Drawn, told: Told, expected: Told, *, idles: bool = False) -> None:
    """Equal in all that does not depend on batches."""
    for name, sink in drawn.sinks.items():
        assert comparable(told.rows[name], sink, idles=idles) == comparable(expected.rows[name], sink, idles=idles), (
            name
        )
    assert told.late == expected.late
    assert told.rejected == expected.rejected
    if not drawn.any_order:
        assert told.fates == expected.fates


refused = Counter[bool]()
"""How many drawn topologies the engine does not take."""


@law
@given(st.data())
def test_the_engine_is_the_interpreter(data: st.DataObject) -> None:
    drawn = data.draw(drawn_topologies())
    try:
        TopologyEngine(drawn.topology, drawn.partitions)
    except NotExpressible:
        refused[True] += 1
        reject()
    refused[False] += 1
    cuts = data.draw(logs(drawn))
    note(describe(drawn.topology))
    idles = any(cut.later_ms for cut in cuts)
    assert_agree(drawn, by_engine(drawn, cuts), by_interpreter(drawn, cuts), idles=idles)


def test_most_drawn_topologies_are_taken_by_the_engine() -> None:
    if not refused:
        pytest.skip("the law has not run")
    assert refused[True] * 3 < refused.total()


# ---- what makes the comparison fail


def drawn_by_hand(flow: RecordStream | Table, sink: Comparable, partitions: Mapping[str, int]) -> Drawn:
    """A topology that ends in ``flow``, as if it had been drawn."""
    topology = Topology(name="drawn", sinks=[flow.to(Topic(name="out", key="id"))], idle_after="60 s")
    return Drawn(topology=topology, partitions=partitions, sinks={"out": sink}, any_order=False, idles=False)


def left(at: int, word: str | None = "a", *, key: bytes | None = b"a", partition: int = 0, n: int = 1) -> Event:
    """A record of the topic `left`."""
    value = json.dumps({"ln": n, "lw": word, "lb": True}).encode()
    return Event("left", LogRecord(partition=partition, timestamp_ms=at, key=key, value=value))


EXACT = Comparable(exactness="rows", with_times=True, has_bounds=True)
LATEST = Comparable(exactness="latest", with_times=True, has_bounds=True)
LEFT = stream(TOPICS["left"])
PER_WORD = LEFT.select_key(word=col("lw")).windowed_by(tumbling("10 ms", grace="5 ms")).aggregate(n=count())
COUNTED = drawn_by_hand(PER_WORD.emit_final(), EXACT, {"left": 1})
LOG = [left(1), left(9), left(30), left(2), Event("left", LogRecord(timestamp_ms=40, value=b"{"))]
"""Two records of one window, one that closes it, a late one, a bad one."""


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ([*LOG[:1], *LOG[2:]], "a lost record"),
        ([*LOG, LOG[2]], "a record counted twice"),
        ([LOG[0], left(11), *LOG[2:]], "a record in another window"),
        ([LOG[0], left(8), *LOG[2:]], "another time within the window"),
        ([LOG[0], left(9, "b"), *LOG[2:]], "a record of another key"),
        ([*LOG[:3], *LOG[4:]], "a late record less"),
        ([*LOG[:3], left(3), *LOG[4:]], "a late record of another time"),
        (LOG[:4], "a dead letter less"),
        ([*LOG, left(50, None)], "a null key more"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("sink", [EXACT, LATEST], ids=["rows", "latest"])
def test_another_log_is_seen(other: Sequence[Event], what: str, sink: Comparable) -> None:
    drawn = replace(COUNTED, sinks={"out": sink})
    end = closing(drawn.partitions)
    assert_agree(drawn, by_engine(drawn, [Cut(LOG), end]), by_interpreter(drawn, [Cut(LOG), end]))
    with pytest.raises(AssertionError):
        assert_agree(drawn, by_engine(drawn, [Cut(other), end]), by_interpreter(drawn, [Cut(LOG), end]))


def test_another_revision_is_seen_and_where_only_the_latest_counts_it_is_not() -> None:
    told = by_interpreter(COUNTED, [Cut(LOG), closing(COUNTED.partitions)])
    rows = [(key, window, at_ms, revision + 1, value) for key, window, at_ms, revision, value in told.rows["out"]]
    revised = replace(told, rows={"out": rows})
    with pytest.raises(AssertionError):
        assert_agree(COUNTED, revised, told)
    assert_agree(replace(COUNTED, sinks={"out": LATEST}), revised, told)


def test_a_row_that_was_deleted_and_one_that_is_missing_are_seen_as_the_same() -> None:
    there, gone = row_of("a", (0, 10), 9, 0, {"n": 1}), row_of("a", (0, 10), 10, 1, None)
    assert comparable([there, gone], LATEST, idles=False) == comparable([], LATEST, idles=False)
    assert comparable([there], LATEST, idles=False) != comparable([], LATEST, idles=False)
    assert comparable([there, gone], EXACT, idles=False) != comparable([], EXACT, idles=False)


# ---- what the law has found


def assert_law(drawn: Drawn, *cuts: Cut) -> None:
    """Engine and interpreter agree on this log."""
    log = [*cuts, closing(drawn.partitions)]
    assert_agree(drawn, by_engine(drawn, log), by_interpreter(drawn, log))


def test_a_topology_that_remembers_nothing_runs_and_restarts() -> None:
    drawn = drawn_by_hand(LEFT.filter(col("ln") > 0), EXACT, {"left": 1})
    assert_law(drawn, Cut([left(1)]), Cut([left(2)], restarts=True))


def right(at: int, word: str | None = "a", *, partition: int = 0) -> Event:
    """A record of the topic `right`, whose time is a field."""
    value = json.dumps({"rn": 1, "rw": word, "rat": at}).encode()
    return Event("right", LogRecord(partition=partition, key=b"r", value=value))


def test_a_null_key_above_a_join_lets_nobody_alone_who_is_met_later() -> None:
    #  left    5 a ─────── 100 without a key          the window [0, 10) of a is still open: 8 a is on time
    #  right   5 a ─ 100
    counts = PER_WORD.emit_final().select("n")
    flow = (
        stream(TOPICS["right"]).select_key(word=col("rw")).left_join(counts, before="9 ms", after="9 ms", grace="0 s")
    )
    drawn = drawn_by_hand(flow, replace(EXACT, has_bounds=False), {"left": 1, "right": 1})
    cuts = [Cut([left(5), right(5), left(100, None), right(100, "z")]), Cut([left(8)], restarts=True)]
    assert_law(drawn, *cuts)
    rows = by_engine(drawn, [*cuts, closing(drawn.partitions)]).rows["out"]
    assert [cells[0] for *_, cells in rows if cells] == [("n", "int", 2), ("n", "NoneType", None)]


def test_a_record_without_an_id_makes_nobody_late_below_the_deduplication() -> None:
    by_word = LEFT.select_key(key=col("lw")).deduplicate("lw", horizon="0 ms")
    windows = by_word.windowed_by(tumbling("10 ms", grace="0 s")).aggregate(n=count())
    drawn = drawn_by_hand(windows.emit_final(), EXACT, {"left": 1})
    assert_law(drawn, Cut([left(60, None), left(5), left(6, "b")]), Cut([left(7, "c")], restarts=True))
    assert not by_engine(drawn, [Cut([left(60, None), left(5)])]).late


@pytest.mark.parametrize("at", [[], [1], [2], [1, 2]])
def test_what_is_held_back_advances_time_with_or_without_a_key_however_the_log_is_cut(at: list[int]) -> None:
    first = LEFT.select_key(held=col(KEY)).deduplicate("held", horizon="3 ms")
    windows = first.select_key(word=col("lw")).windowed_by(tumbling("10 ms", grace="0 s")).aggregate(n=count())
    drawn = drawn_by_hand(windows.emit_final(), EXACT, {"left": 1})
    log = [left(62, None, key=b"x"), left(59, key=b"y"), left(200, key=b"z")]
    bounds = [0, *at, len(log)]
    assert_law(drawn, *(Cut(log[start:end], restarts=True) for start, end in pairwise(bounds)))
