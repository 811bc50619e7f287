"""Long random logs for drawn topologies, and what interpreter and recompute say of them, to be compared."""

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from tests.spark.recompute.graph_logs import Arrival, Log, frames, table_ends
from tests.unit.engine import wide_values
from tests.unit.engine.random_flows import TABLES
from tests.unit.engine.random_topologies import Drawn
from tests.unit.engine.random_topology_logs import BAD_VALUES, FUTURE_MS
from tests.unit.engine.topology_runs import row_of, text_of

from recount.audit.compare.identity import Identity, identity_of
from recount.declare.columns import IS_NULL, RESULT_TIME
from recount.declare.functions import FUNCTION_RAISED, OUT_OF_RANGE
from recount.declare.operators.joins import StreamTableJoin
from recount.declare.operators.nodes import KEY, WINDOW_END, WINDOW_START
from recount.engine.stage.intake import LATE_SCHEMA
from recount.recompute.decoding import Limits
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.operators.beginnings import untold
from recount.recompute.operators.frontiers import BatchEnds
from recount.recompute.operators.log_tables import TableEnds
from recount.recompute.operators.recomputed import recomputed
from recount.reference.record_clock import Output
from recount.reference.topology_driver import TopologyDriver

HOURS, RECORDS, HOUR_MS = 20, 24, 1_000
"""A log has so many hours of so many records; an hour is longer than anything in a topology waits."""
SPAN_MS = 60
NOW_MS, END_MS = 1_000_000, 1_000_000
_LETTER = ("topic", "partition", "offset", "timestamp_ms", "reason")
_KEYS = (b"a", b"a", b"a", b"b", b"b", b"b", b"c", b"c", None, b"\xff")


def drawn_log(drawn: Drawn, dice: random.Random, *, tables_first: bool, hours: int = HOURS, moves: bool = False) -> Log:
    """Records out of order, late, with nulls, ties, bad values and times, of keys that are met hour after hour.

    The key says in which partition a record is, unless the topology asks for no order. With ``moves`` some keys change
    partition, to and fro.
    """
    by_key = drawn.by_key or not drawn.any_order or dice.random() < 0.5
    moving = random.Random(len(drawn.partitions) + hours) if moves and drawn.moves else None
    wide = random.Random(hours)
    log = [_arrival(drawn, dice, wide, hour * HOUR_MS, by_key, moving) for hour in range(hours) for _ in range(RECORDS)]
    return sorted(log, key=lambda one: one.topic not in TABLES) if tables_first else log


def _arrival(
    drawn: Drawn, dice: random.Random, wide: random.Random, hour_ms: int, by_key: bool, moving: random.Random | None
) -> Arrival:
    topic = dice.choice(sorted(drawn.partitions))
    key = dice.choice(_KEYS)
    place = ord(key) if key and by_key else dice.randrange(3)
    place += 0 if moving is None else moving.choice([0, 0, 0, 1, 2])
    return Arrival(
        topic=topic,
        partition=place % drawn.partitions[topic],
        key=key,
        value=_value(topic[0], dice, wide, hour_ms),
        timestamp_ms=_time_ms(dice, hour_ms),
    )


def _value(letter: str, dice: random.Random, wide: random.Random, hour_ms: int) -> bytes | None:
    """JSON of the topic whose fields begin with ``letter``; null values and what is no value at all.

    The largest numbers have dice of their own: the rest of a log is the same without them.
    """
    if dice.random() < 0.1:
        return dice.choice([None, None, *BAD_VALUES])
    fields = {
        "n": dice.choice([0, 1, 2, 3, None]),
        "w": dice.choice(["a", "a", "b", "b", None]),
        "x": dice.choice([0.5, 2.0, None]),
        "d": dice.choice([0.25, 1.5]),
        "b": dice.choice([True, False]),
        **{name: wide.choice(values) for name, values in wide_values.VALUES.items()},
        "at": _time_ms(dice, hour_ms) if letter == "r" else None,
    }
    return json.dumps({letter + name: value for name, value in fields.items()}).encode()


def _time_ms(dice: random.Random, hour_ms: int) -> int:
    if dice.random() < 0.05:
        return dice.choice([-1, FUTURE_MS])
    return hour_ms + (dice.randrange(SPAN_MS) if dice.random() < 0.9 else 20)


Row = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is said of a log: the rows of each sink, late records, bad ones, and the fate of each.

    Of a log that is not over it says nothing of what a suppression holds;
    where sinks were added on the way, of no fates, and of no records set aside: some served only these sinks.
    """

    rows: Mapping[str, Counter[Row]]
    late: Counter[Row]
    rejected: Counter[Row]
    fates: Counter[Row]


def identities_of(drawn: Drawn) -> list[Identity]:
    """How the audit tells the rows of each sink apart; raises ``NotRecomputable`` where it cannot."""
    return [identity_of(node) for node in drawn.topology.written]


def added_sinks(identities: Sequence[Identity], log: Log, dice: random.Random) -> dict[str, int]:
    """Some of the sinks that can be added to a stream at work, each with how many records had been read by then."""
    able = [one.written for one in identities if untold(one.written.input) is None]
    return {written.topic.name: dice.randrange(1, len(log)) for written in able if dice.random() < 0.7}


def by_interpreter(
    drawn: Drawn, log: Log, identities: Sequence[Identity], *, is_over: bool, added: Mapping[str, int]
) -> Truth:
    """What the interpreter says: when all time has passed, or when it has read the last record."""
    driver = TopologyDriver(drawn.topology, partitions=drawn.partitions, wall_clock_ms=NOW_MS)
    written_before = dict.fromkeys((one.written.topic.name for one in identities), 0)
    for number, one in enumerate(log, start=1):
        driver.pipe(one.topic, key=one.key, value=one.value, timestamp_ms=one.timestamp_ms, partition=one.partition)
        written_before |= {topic: len(driver.outputs(topic)) for topic, done in added.items() if done == number}
    if is_over:
        driver.advance_to(END_MS)
    return Truth(
        rows={
            topic: _that_count(driver.outputs(topic)[written_before[topic] :], identity)
            for identity in _told_of(identities, is_over=is_over)
            for topic in [identity.written.topic.name]
        },
        late=Counter(
            tuple(text_of(one.key) if name == "key" else getattr(one, name) for name in LATE_SCHEMA)
            for one in driver.late
        ),
        rejected=_letters(
            ((b.topic, b.partition, b.offset, b.timestamp_ms, b.reason) for b in driver.dead_letters), added
        ),
        fates=Counter((at.topic, at.partition, at.offset, fate) for at, fate in driver.fate_of.items() if not added),
    )


def _told_of(identities: Sequence[Identity], *, is_over: bool) -> list[Identity]:
    return [one for one in identities if is_over or one.suppression is None]


def _that_count(outputs: Sequence[Output], identity: Identity) -> Counter[Row]:
    """Every row, or of those with one key and window the last, unless that is a deletion."""
    if not identity.is_latest:
        return Counter(_told(out, identity) for out in outputs)
    latest = {(out.key, out.window): out for out in outputs}.values()
    return Counter(_told(out, identity) for out in latest if out.value is not None)


def _told(out: Output, identity: Identity) -> Row:
    return row_of(out.key, out.window, out.timestamp_ms if identity.is_timed else 0, 0, out.value)


def by_recompute(
    spark: SparkSession,
    drawn: Drawn,
    log: Log,
    identities: Sequence[Identity],
    *,
    is_over: bool,
    added: Mapping[str, int],
) -> Truth:
    """What the recompute says. Lookups see what had been read of the table; all of it, if the log has it first."""
    done = recomputed(
        spark,
        drawn.topology,
        frames(spark, [log], sorted(drawn.partitions)),
        limits=limits_of(drawn),
        table_ends=table_ends_of(drawn, log),
        frontier_ms=END_MS if is_over else None,
        batches=None if is_over else one_by_one(drawn, log),
        done_before=added,
    )
    try:
        return Truth(
            rows={
                identity.written.topic.name: _rows_of(done.results[identity.written], identity)
                for identity in _told_of(identities, is_over=is_over)
            },
            late=_bag(done.late, *LATE_SCHEMA),
            rejected=_letters(_bag(done.ledgers["rejected"], *_LETTER).elements(), added),
            fates=_bag(done.ledgers["fates"], "topic", "partition", "offset", "fate") if not added else Counter(),
        )
    finally:
        done.release()


def limits_of(drawn: Drawn) -> dict[str, dict[int, Limits]]:
    """Which times are absurd."""
    latest = Limits(starts=[0], latest_ms=[NOW_MS + drawn.topology.max_future_ms])
    return {topic: dict.fromkeys(range(many), latest) for topic, many in drawn.partitions.items()}


def table_ends_of(drawn: Drawn, log: Log) -> list[TableEnds] | None:
    """What had been read of tables when each record came; None where nobody asks, or all of it."""
    tables_first = log == sorted(log, key=lambda one: one.topic not in TABLES)
    looks_up = any(isinstance(node, StreamTableJoin) and node.grace_ms is None for node in drawn.topology.nodes())
    return table_ends([log]) if looks_up and not tables_first else None


def one_by_one(drawn: Drawn, log: Log) -> list[BatchEnds]:
    """Every record as a batch of its own."""
    ends = {(topic, partition): 0 for topic, many in drawn.partitions.items() for partition in range(many)}
    batches = []
    for one in log:
        ends[one.topic, one.partition] += 1
        batches.append(BatchEnds(ends=dict(ends), awake=frozenset(ends)))
    return batches


def _rows_of(frame: Frame, identity: Identity) -> Counter[Row]:
    fields, found = identity.written.fields, Counter[Row]()
    for row in frame.rows():
        window = (row[WINDOW_START], row[WINDOW_END]) if WINDOW_START in fields else None
        value = None if row[IS_NULL] else {name: row[name] for name in fields if name != KEY}
        if value is not None or not identity.is_latest:
            at_ms = row[RESULT_TIME] if identity.is_timed else 0
            found[row_of(row[identity.written.key], window, at_ms, 0, value)] += 1
    return found


def _letters(rejected: Iterable[Row], added: Mapping[str, int]) -> Counter[Row]:
    return Counter(row for row in rejected if not added or not row[-1].startswith((FUNCTION_RAISED, OUT_OF_RANGE)))


def _bag(frame: Frame, *names: str) -> Counter[Row]:
    return Counter(tuple(row.values()) for row in frame.select(*names).rows())
