"""A log run through the engine and through the interpreter, and what of both must agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import polars as pl
from tests.unit.engine.engine import NOW_MS
from tests.unit.engine.random_flows import TABLES, Comparable
from tests.unit.engine.random_topologies import Drawn
from tests.unit.engine.random_topology_logs import IDLE_AFTER_MS, Cut, Event
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.columns import IS_NULL, RESULT_TIME, REVISION, TIMESTAMP
from recount.declare.operators.nodes import KEY, WINDOW_END, WINDOW_START
from recount.declare.topology import Written
from recount.engine.operators.batch_operator import FATES
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.stage.intake import LATE_SCHEMA
from recount.reference.record_clock import Output
from recount.reference.records import DeadLetter, Intake
from recount.reference.topology_driver import TopologyDriver

Row = tuple[Any, ...]
"""Key, window, time, revision, value; see ``row_of``."""


@dataclass
class Told:
    """What a run says about a log, to be compared: nothing in it depends on batches where ``drawn`` says so."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    late: Counter[Row] = field(default_factory=Counter)
    rejected: Counter[Row] = field(default_factory=Counter)
    fates: list[Mapping[Any, int]] = field(default_factory=list)


def row_of(key: Any, window: Row | None, timestamp_ms: int, revision: int, value: Mapping[str, Any] | None) -> Row:
    """A result to be compared, its values with their types, for 1 == 1.0 == Decimal(1)."""
    if value is None:
        return key, window, timestamp_ms, revision, None
    told = {name: tuple(cell) if isinstance(cell, list) else cell for name, cell in value.items()}
    return key, window, timestamp_ms, revision, tuple((name, type(cell).__name__, cell) for name, cell in told.items())


def by_engine(drawn: Drawn, cuts: Sequence[Cut], parts: Sequence[int] = (1,)) -> Told:
    """What the engine says, which goes on with the next number of ``parts`` when it starts again."""
    numbers = cycle(parts)
    engine, told, now_ms = TopologyEngine(drawn.topology, drawn.partitions, parts=next(numbers)), Told(), NOW_MS
    for cut in cuts:
        if cut.restarts:
            engine.restart(next(numbers))
        now_ms += cut.later_ms
        by_topic = {topic: [one.record for one in cut.events if one.topic == topic] for topic in drawn.partitions}
        computed = engine.batch(by_topic, now_ms=now_ms)
        told.fates.append(_fates(computed.after))
        told.late.update(computed.late.select(list(LATE_SCHEMA)).rows())
        told.rejected.update(_letters(computed.rejected))
    for node in drawn.topology.written:
        told.rows[node.topic.name] = list(engine_rows(node, engine.emitted(node.table)))
    return told


def _fates(clock: PartitionClock) -> Mapping[Any, int]:
    return {
        (place, fate.replace("_", " ")): getattr(proof, fate)
        for place, proof in clock.partitions.items()
        for fate in FATES
        if getattr(proof, fate)
    }


def _letters(rejected: pl.DataFrame) -> Iterable[Row]:
    return map(_letter, rejected.select("topic", "partition", "offset", TIMESTAMP, "reason", "detail").rows())


def _letter(letter: Row) -> Row:
    """Without what differs from run to run: the message of an error, and what the latest time was."""
    return letter[:-1] if letter[-2].startswith(("function-raised", "future-timestamp")) else letter


def engine_rows(node: Written, emitted: pl.DataFrame) -> Iterable[Row]:
    for row in emitted.iter_rows(named=True):
        window = (row[WINDOW_START], row[WINDOW_END]) if WINDOW_START in node.fields else None
        value = None if row.get(IS_NULL) else {name: row[name] for name in node.fields if name != KEY}
        yield row_of(row[node.key], window, row[RESULT_TIME], row[REVISION], value)


def by_interpreter(drawn: Drawn, cuts: Sequence[Cut]) -> Told:
    """What the interpreter says: record by record as drawn, or where the order matters as the engine reads a batch.

    It matters where partitions are idle: a batch that wakes one holds the frontier back, from its first record on.
    """
    driver, told, now_ms = TopologyDriver(drawn.topology, partitions=drawn.partitions), Told(), NOW_MS
    intake, seen, idles = Intake(drawn.topology), 0, any(cut.later_ms for cut in cuts)
    for cut in cuts:
        now_ms += cut.later_ms
        driver.wall_clock_ms = now_ms
        if drawn.any_order and not idles:
            pipe(driver, cut.events)
        else:
            with driver.batch():
                pipe(driver, in_reading_order(intake, cut.events, now_ms))
        told.fates.append(
            Counter((e.source, f) for e, f in list(driver.fate_of.items())[seen:] if f != "dead-lettered")
        )
        seen = len(driver.fate_of)
        declare_idle(driver, drawn, cuts[: len(told.fates)])
    for sink in drawn.topology.written:
        told.rows[sink.topic.name] = [interpreter_row(out) for out in driver.outputs(sink.topic.name)]
    told.late.update(
        tuple(text_of(row.key) if name == "key" else getattr(row, name) for name in LATE_SCHEMA) for row in driver.late
    )
    letters = ((b.topic, b.partition, b.offset, b.timestamp_ms, b.reason, b.detail) for b in driver.dead_letters)
    told.rejected.update(map(_letter, letters))
    return told


def text_of(key: object) -> str | None:
    """A key as the late ledger has it."""
    return None if key is None else str(key)


def pipe(driver: TopologyDriver, found: Iterable[Event]) -> None:
    for one in found:
        record = one.record
        driver.pipe(
            one.topic, key=record.key, value=record.value, timestamp_ms=record.timestamp_ms, partition=record.partition
        )


def in_reading_order(intake: Intake, events: Sequence[Event], now_ms: int) -> list[Event]:
    """Tables first, then topic by topic, and of a topic's partitions always the one that has come least far in time."""
    reached: dict[tuple[str, int], int] = {}
    turns = []
    for one in events:
        record, place = one.record, (one.topic, one.record.partition)
        taken = intake.take(
            topic=one.topic,
            partition=record.partition,
            offset=0,
            timestamp_ms=record.timestamp_ms,
            key=record.key,
            value=record.value,
            wall_clock_ms=now_ms,
            headers=[],
        )
        if not isinstance(taken, DeadLetter):
            reached[place] = max(taken.entry.timestamp_ms, reached.get(place, taken.entry.timestamp_ms))
        turns.append((one.topic not in TABLES, one.topic, reached.get(place, -1), record.partition))
    return [one for _, one in sorted(zip(turns, events, strict=True), key=lambda turn: turn[0])]


def declare_idle(driver: TopologyDriver, drawn: Drawn, cuts: Sequence[Cut]) -> None:
    """The partitions that no batch has read for long enough; not by a batch that reads tables before they are asked."""
    read = {one.topic for one in cuts[-1].events}
    layers = [number for number, topics in enumerate(drawn.topology.layers) if read & set(topics)]
    asked = {topic for topics in drawn.topology.layers[: max(layers, default=len(TABLES)) + 1] for topic in topics}
    for topic, many in drawn.partitions.items():
        if topic not in asked:
            continue
        for partition in range(many):
            silent_ms = 0
            for cut in cuts:
                spoke = any((one.topic, one.record.partition) == (topic, partition) for one in cut.events)
                silent_ms = 0 if spoke or cut is cuts[0] else silent_ms + cut.later_ms
            if silent_ms >= IDLE_AFTER_MS:
                driver.idle(topic, partition)


def interpreter_row(out: Output) -> Row:
    return row_of(out.key, out.window, out.timestamp_ms, out.revision, out.value)


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


def revisions_count_up(rows: Iterable[Row]) -> bool:
    """Whether those of each key and window are 0, 1, 2, ..."""
    seen = Counter[Row]()
    for key, window, _, revision, _ in rows:
        if revision != seen[key, window]:
            return False
        seen[key, window] += 1
    return True


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
