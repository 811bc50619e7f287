"""Scenes in which the rules of time come to their boundaries: topologies, and a log that goes up to and beyond each.

The log: pairs of records 1 to 14 ms apart, a chain of steps of 3 ms, records 0 to 40 ms late in each partition, some
of them of keys that are known, sessions that are bridged, some records at random, and at the end one of every
millisecond, so that the last frontier divides them exactly. Then records without a key advance the time of those
who need none, and one comes behind them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import add
from typing import Any

from tests.mutants.scene import LATEST_MS, PARTITIONS, Scene
from tests.unit.engine.engine import NOW_MS, LogRecord
from tests.unit.engine.random_flows import TOPICS
from tests.unit.engine.random_topology_logs import Event

from recount.declare.aggregates import count, fold, reduce, total
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table, stream, table
from recount.declare.operators.nodes import KEY
from recount.declare.operators.processing import KeyState
from recount.declare.schema import LONG, STRING, list_of
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import Windows, hopping, session, sliding, tumbling

BATCH, LAST_MS = 60, 319


def scene_of_time(name: str) -> Scene:
    """The scene of a flow."""
    topology = _topology(FLOWS[name]())
    topics = sorted(source.topic.name for source in topology.sources)
    return Scene(name=name, topology=topology, batches=tuple(map(tuple, _batches(topics, table_ahead=name in AHEAD))))


def _topology(flow: RecordStream | Table) -> Topology:
    return Topology(name="scene", sinks=[flow.to(Topic(name="out", key="id"))])


def _batches(topics: list[str], *, table_ahead: bool) -> Iterator[list[Event]]:
    def of_all(moments: Iterable[tuple[int, str]]) -> list[Event]:
        """A record of each topic; a word can have the topic's name in it, so that no other topic has it."""
        return [_record(topic, at_ms, word.format(topic)) for at_ms, word in moments for topic in topics]

    yield of_all(sorted(_pairs()))
    yield of_all([*((at_ms, "known") for at_ms in range(180, 200)), (194, "short"), *_clocks(200)])
    again = [(at_ms, "known") for at_ms in range(199, 170, -1)]
    late = [(at_ms, f"late{at_ms}") for at_ms in range(200, 159, -1)]
    yield of_all([(191, "won"), (197, "short"), *again, *late, (154, "b4"), (155, "b5")])
    yield of_all([(210, "g"), (215, "g"), (212, "g"), (225, "h"), (220, "h"), (222, "h"), *_clocks(225)])
    yield list(_at_random(topics))
    stairs: list[tuple[int, str]] = []
    for at_ms in range(260, LAST_MS):
        stairs += [(at_ms, f"both{at_ms}"), (at_ms, f"{{}}{at_ms}"), *_clocks(at_ms)]
    yield from (of_all(stairs[start : start + BATCH]) for start in range(0, len(stairs), BATCH))
    yield of_all(_clocks(LAST_MS))
    if table_ahead:
        yield [_record("versions", LAST_MS + 21, word) for _, word in _clocks(0)]
    yield [_record(topic, LAST_MS + 11, None, partition=n) for topic in topics for n in range(PARTITIONS)]
    yield of_all([(LAST_MS - 9, "after")])
    yield of_all([*_clocks(LAST_MS - 6), *_clocks(LAST_MS - 9)])


def _pairs() -> Iterator[tuple[int, str]]:
    yield from ((at_ms, "early") for at_ms in (0, 2, 7, 12))
    for apart_ms in range(1, 15):
        yield 100, f"p{apart_ms}"
        yield 100 + apart_ms, f"p{apart_ms}"
    yield from ((130 + 3 * step, "c") for step in range(5))
    yield from ((150, word) for word in ("b4", "b5"))
    yield 182, "won"
    yield from _clocks(0)


def _at_random(topics: list[str]) -> Iterator[Event]:
    dice = random.Random(12)
    for step in range(60):
        word, at_ms = dice.choice("abc"), 226 + step // 2 - dice.randrange(16)
        key = None if dice.random() < 0.08 else word
        yield _record(dice.choice(topics), at_ms, key, is_null=dice.random() < 0.08)


def _clocks(at_ms: int) -> list[tuple[int, str]]:
    """A record for each partition."""
    return [(at_ms, "z0"), (at_ms, "z1")]


def _record(topic: str, at_ms: int, word: str | None, *, is_null: bool = False, partition: int | None = None) -> Event:
    """A record whose key is also a field; the topic `right` has its time in a field."""
    letter, key = topic[0], None if word is None else word.encode()
    value = {"n": at_ms % 7, "w": word, "x": 0.5, "d": 1.25, "b": at_ms % 2 == 0, "at": at_ms}
    said = None if is_null and topic != "right" else json.dumps({letter + name: one for name, one in value.items()})
    place = sum(key or b"") % PARTITIONS if partition is None else partition
    encoded = None if said is None else said.encode()
    return Event(topic, LogRecord(partition=place, timestamp_ms=at_ms, key=key, value=encoded))


LEFT, RIGHT = stream(TOPICS["left"]), stream(TOPICS["right"])
WORDS = LEFT.select_key(word=col("lw"))
TEXT = fold("ln", initial=str, adder=lambda text, n: f"{text}{n},", merger="{}|{}".format, returns=STRING)


def _counted(rows: RecordStream, windows: Windows) -> RecordStream:
    return rows.windowed_by(windows).aggregate(n=count()).emit_final()


def _remind(row: Mapping[str, Any], state: KeyState) -> list[dict[str, Any]]:
    state.schedule(state.timestamp_ms + 6)
    return _numbered(state)


def _taken(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"ln": {n: n for n in range(7) if n != 3}[row["ln"]]}


def _remind_and_raise(row: Mapping[str, Any], state: KeyState) -> list[dict[str, Any]]:
    made = _remind(row, state)
    if row["ln"] in (1, 4):
        raise ValueError(f"after all: {state}")
    return made


def _without_three(seen: list[int], n: int | None) -> list[int]:
    """Raises for a 3, after it has changed what it was given; if that is not undone, for all that follow."""
    if n is None:
        return seen
    seen.append(n)
    if 3 in seen:
        raise ValueError(f"a 3: {seen}")
    return seen


def _rung(at_ms: int, state: KeyState) -> list[dict[str, Any]]:
    if at_ms % 2 == 0:
        state.schedule(at_ms + 3)
    return _numbered(state)


def _numbered(state: KeyState) -> list[dict[str, Any]]:
    """What comes out says in which order records and timers came."""
    state.remembered["n"] = state.remembered.get("n", 0) + 1
    return [{"said": state.remembered["n"]}]


def _joined(kind: str) -> RecordStream:
    bounds = {"before": "5 ms", "after": "3 ms", "grace": "4 ms"}
    left = LEFT.select("ln")
    join = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[kind]
    return join(RIGHT.select("rn"), **bounds)


def _own() -> RecordStream:
    return WORDS.select("ln").deduplicate("word", horizon="9 ms")


def _versions() -> Table:
    return table(TOPICS["versions"], versioned=True).select("vn")


def _waiting() -> RecordStream:
    return LEFT.select("ln", "lw").left_join_table(_versions(), grace="5 ms").select("ln")


def totals_in_order() -> RecordStream:
    """Counted in one group of all, by the time of the records."""
    in_order = LEFT.in_order(grace="5 ms").with_fields(all="all").select_key(group=col("all"))
    return in_order.aggregate(n=count(), words=reduce("lw", add)).to_stream().filter(col("n") > 0)


_HOPS = hopping("10 ms", advance="1 ms", grace="5 ms")

FLOWS: dict[str, Callable[[], RecordStream | Table]] = {
    "hopping": lambda: WORDS.windowed_by(_HOPS).aggregate(n=count(), s=total("ln")).emit_final(),
    "hopping, kept as a graph": lambda: WORDS.windowed_by(_HOPS).aggregate(n=count(), text=TEXT).emit_final(),
    "tumbling from an origin": lambda: (
        WORDS.windowed_by(tumbling("4 ms", grace="3 ms", origin="1 ms")).aggregate(n=count()).emit_final()
    ),
    "tumbling of the own key": lambda: _counted(LEFT, tumbling("4 ms", grace="3 ms")),
    "sliding": lambda: _counted(WORDS, sliding("6 ms", grace="4 ms")),
    "sliding, each update": lambda: (
        WORDS.windowed_by(sliding("6 ms", grace="4 ms")).aggregate(n=count()).emit_each_record()
    ),
    "sessions": lambda: (
        WORDS.windowed_by(session("4 ms", grace="3 ms", reach="6 ms")).aggregate(n=count(), text=TEXT).emit_final()
    ),
    "sessions that are cut": lambda: _counted(WORDS, session("4 ms", grace="3 ms", max_duration="9 ms")),
    "short sessions": lambda: _counted(WORDS, session("4 ms", grace="0 ms")).filter(col("n") < 2),
    "inner join": lambda: _joined("inner"),
    "left join": lambda: _joined("left"),
    "outer join": lambda: _joined("outer"),
    "join with later ones": lambda: LEFT.select("ln").join(
        RIGHT.select("rn"), before="0 ms", after="1 ms", grace="4 ms"
    ),
    "join with earlier ones": lambda: LEFT.select("ln").join(
        RIGHT.select("rn"), before="1 ms", after="0 ms", grace="4 ms"
    ),
    "first by event time": _own,
    "first by offset": lambda: LEFT.deduplicate(KEY, horizon="9 ms"),
    "processor": lambda: LEFT.process(_remind, on_timer=_rung, said=LONG),
    "functions that raise": lambda: LEFT.map(_taken, ln=LONG).process(_remind_and_raise, on_timer=_rung, said=LONG),
    "folds that raise": lambda: (
        LEFT.windowed_by(tumbling("20 ms", grace="3 ms"))
        .aggregate(seen=fold("ln", initial=list, adder=_without_three, merger=add, returns=list_of(LONG)))
        .emit_final()
        .map(lambda row: {"said": str(row["seen"])}, said=STRING)
    ),
    "windows below windows": lambda: _counted(_counted(WORDS, tumbling("1 ms", grace="2 ms")), _HOPS),
    "windows below windows and records": lambda: _counted(
        _counted(WORDS, tumbling("1 ms", grace="2 ms")).select("n").merge(WORDS.select(n=col("ln"))), _HOPS
    ),
    "windows below sliding ones": lambda: _counted(_counted(WORDS, sliding("3 ms", grace="1 ms")), _HOPS),
    "windows below sessions": lambda: _counted(_counted(WORDS, session("2 ms", grace="1 ms")), _HOPS),
    "windows below firsts": lambda: _counted(_own(), _HOPS),
    "windows below firsts and all": lambda: _counted(_own().merge(WORDS.select("ln")), _HOPS),
    "windows below firsts by offset": lambda: _counted(
        LEFT.deduplicate(KEY, horizon="9 ms").select_key(m=col("ln")), _HOPS
    ),
    "windows below an order and all": lambda: _counted(
        WORDS.in_order(grace="5 ms").select("ln").merge(WORDS.select("ln")), _HOPS
    ),
    "windows below an order": lambda: _counted(WORDS.in_order(grace="5 ms").select("ln"), _HOPS),
    "lookups that wait": _waiting,
    "lookups at once": lambda: LEFT.select("ln").left_join_table(table(TOPICS["versions"]).select("vn")),
    "lookups with a history": lambda: LEFT.select("ln").left_join_table(
        table(TOPICS["versions"]).select("vn"), history="9 ms"
    ),
    "lookups in a stream": lambda: LEFT.select("ln").left_join_table(
        stream(TOPICS["versions"]).filter(col("vn") > 0).to_table().select("vn")
    ),
    "totals of all time": lambda: WORDS.aggregate(n=count(), s=total("ln")),
    "lookups that drop": lambda: LEFT.select("ln").join_table(table(TOPICS["table"]).select("tn")),
    "windows below lookups that wait": lambda: _counted(_waiting(), _HOPS),
    "windows below a merge": lambda: _counted(_waiting().merge(LEFT.select("ln")), _HOPS),
    "windows below lookups below firsts": lambda: _counted(
        _own().left_join_table(_versions(), grace="5 ms").select("ln"), _HOPS
    ),
    "join below windows": lambda: _counted(WORDS, tumbling("1 ms", grace="2 ms")).outer_join(
        RIGHT.select_key(to=col("rw")).select("rn"), before="5 ms", after="3 ms", grace="4 ms"
    ),
    "tables joined": lambda: _versions().join(table(TOPICS["table"]).select("tn")),
    "versioned table, held back": lambda: _versions().emit_after("6 ms"),
}
AHEAD = {"windows below lookups below firsts"}
"""Where the time of the table is beyond that of the records, so that it holds nothing back."""


record_of, topology_of = _record, _topology


def event_times() -> Scene:
    """Event times from before the epoch to beyond what is sane."""
    times = (0, -1, 5, LATEST_MS - 1, LATEST_MS, LATEST_MS + 1)
    batch = tuple(_record("left", one, "a") for one in times)
    return Scene(name="event times", topology=_topology(LEFT.filter(col("ln") >= 0)), batches=(batch,))


def a_quiet_partition(name: str, flow: Callable[[], RecordStream | Table], *, falls_back: bool = False) -> Scene:
    """The second partition of `left` is silent up to and beyond ``idle_after``, and then speaks again.

    Its stream time stands a millisecond before a window closes whose result has left when it comes to that window.
    """
    quiet_ms = 300_000
    steps: tuple[tuple[int, tuple[tuple[int, str], ...]], ...] = (
        (0, ((100, "z0"), (100, "z1"), (105, "z1"))),
        (quiet_ms - 1, ((120, "z0"),)),
        (quiet_ms, ((140, "z0"),)),
        (quiet_ms + 1, ((160, "z0"),)),
        (quiet_ms + 2, ((100, "z1"), (110, "z1"))),
        (quiet_ms + 3, ((110, "z1") if falls_back else (160, "z1"),)),
    )
    topology = _topology(flow())
    topics = sorted(source.topic.name for source in topology.sources)
    times_ms = [NOW_MS + after for after, _ in steps]
    batches = tuple(tuple(_record(topic, *one) for topic in topics for one in records) for _, records in steps)
    return Scene(name=name, topology=topology, batches=batches, times_ms=times_ms, falls_back=falls_back)


def records_in_order() -> Scene:
    """Of two records of one time the one of the first partition is read after the other could have left a little early.

    In the end the last but one can just leave.
    """
    steps = (((100, "z0"), (95, "z1"), (100, "z1")), ((95, "z0"), (104, "z0"), (102, "z0")), ((110, "z0"), (110, "z1")))
    batches = tuple(tuple(_record("left", *one) for one in records) for records in steps)
    return Scene(name="records in order", topology=_topology(totals_in_order()), batches=batches)


def records_side_by_side() -> Scene:
    """Updates of sliding windows of 6 ms: two records of one time, one of the millisecond before, and one that is late.

    The last one misses [101, 107], which begins after 100 and holds 101 alone.
    """
    late = ((100, "late"), (101, "late"), (112, "z"), (104, "late"))
    moments = (*late, (120, "twice"), (117, "twice"), (117, "twice"), (126, "before"), (125, "before"))
    batch = tuple(_record("left", *one, partition=0) for one in moments)
    return Scene(name="sliding, side by side", topology=_topology(FLOWS["sliding, each update"]()), batches=(batch,))
