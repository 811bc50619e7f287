"""Random logs for the general recompute, many in one run: every log has partitions and keys of its own."""

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from recount.declare.columns import IS_NULL, ORIGIN, RESULT_TIME
from recount.declare.operators.nodes import KEY
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.operators.log_tables import TableEnds
from recount.recompute.raw_log import HEADERS, SCHEMA, RawLog
from recount.reference.topology_driver import TopologyDriver

EVENTS = Topic(
    name="events",
    key="id",
    value=RecordSchema.of(who=STRING, n=LONG, amount=decimal(9, 2), rate=DOUBLE, vip=BOOLEAN, required=("n",)),
)
OTHERS = Topic(name="others", key="id", value=RecordSchema.of(whom=STRING, what=LONG))
USERS = Topic(name="users", key="user", value=RecordSchema.of(tier=STRING, score=LONG))
CITIES = Topic(name="cities", key="user", value=RecordSchema.of(city=STRING))
OUT = Topic(name="out", key="who")
END_MS = 1_000_000
PARTITIONS = 2


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A record, in the order in which the interpreter reads it."""

    topic: str
    partition: int
    key: str | bytes | None
    value: Mapping[str, Any] | bytes | None
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes | None]] = ()


Log = Sequence[Arrival]


def values(topic: str, dice: random.Random, number: int) -> Mapping[str, Any] | bytes | None:
    """A value of ``topic``; now and then a tombstone or a bad one."""
    said = dice.random()
    if said < 0.08:
        return None
    if said < 0.12 and topic == "events":
        return b"{"
    name = f"{number}:{dice.choice('abc')}"
    match topic:
        case "events":
            return {
                "who": name if dice.random() > 0.1 else None,
                "n": dice.randrange(20),
                "amount": dice.choice([None, 0.5, 1.25, 7]),
                "rate": dice.choice([0.1, 0.25, None]),
                "vip": dice.choice([True, False, None]),
            }
        case "others":
            return {"whom": name, "what": dice.randrange(20)}
        case "users":
            return {"tier": f"{number}:{dice.choice(['gold', 'tin'])}", "score": dice.randrange(9)}
    return {"city": dice.choice(["Bonn", "Kiel"])}


def random_log(
    number: int,
    topics: Sequence[str],
    *,
    length: int = 30,
    span_ms: int = 60,
    tables_first: bool = False,
    partitions: int = PARTITIONS,
) -> Log:
    """A log of its own keys and partitions; a key determines the partition of its records.

    Every partition speaks at time 0, for the interpreter takes one that never spoke for idle and decides without it.
    """
    dice = random.Random(number)
    log = [_first(topic, number, partition) for topic in topics for partition in range(partitions)]
    for _ in range(length):
        topic = dice.choice(topics)
        letter = dice.choice("abcd")
        key = f"{number}:{letter}" if dice.random() > 0.06 else None
        partition = PARTITIONS * number + "abcd".index(letter) % partitions
        at_ms = dice.randrange(span_ms)
        value = values(topic, dice, number)
        log.append(Arrival(topic=topic, partition=partition, key=key, value=value, timestamp_ms=at_ms))
    return sorted(log, key=lambda one: one.topic not in {"users", "cities"}) if tables_first else log


def _first(topic: str, number: int, partition: int) -> Arrival:
    value = {"n": 0, "what": 0, "tier": f"{number}:tin", "score": 0, "city": "Bonn", "who": f"{number}:a"}
    key = f"{number}:{'ab'[partition]}"
    return Arrival(topic=topic, partition=PARTITIONS * number + partition, key=key, value=value, timestamp_ms=0)


def frames(session: SparkSession, logs: Sequence[Log], topics: Sequence[str]) -> dict[str, RawLog]:
    """All logs as raw records, by topic; with headers where any record has some."""
    schema = SCHEMA + (HEADERS if any(one.headers for log in logs for one in log) else "")
    rows: dict[str, list[tuple[Any, ...]]] = {topic: [] for topic in topics}
    offsets: Counter[tuple[str, int]] = Counter()
    for one in (one for log in logs for one in log):
        value = one.value if isinstance(one.value, bytes) or one.value is None else json.dumps(one.value).encode()
        place = one.topic, one.partition
        key = one.key.encode() if isinstance(one.key, str) else one.key
        row = (one.partition, offsets[place], one.timestamp_ms, key, value)
        rows[one.topic].append(row if schema == SCHEMA else (*row, list(one.headers)))
        offsets[place] += 1
    ordered = {topic: sorted(found, key=lambda row: row[:2]) for topic, found in rows.items()}
    return {topic: RawLog(frame=session.createDataFrame(found, schema).coalesce(1)) for topic, found in ordered.items()}


def table_ends(logs: Sequence[Log]) -> list[TableEnds]:
    """For every record what had been read of all other topics when it arrived."""
    ends = []
    for log in logs:
        read: Counter[tuple[str, int]] = Counter()
        for one in log:
            offset = read[one.topic, one.partition]
            read[one.topic, one.partition] += 1
            ends.append(
                TableEnds(topic=one.topic, partition=one.partition, start=offset, end=offset + 1, read=dict(read))
            )
    return ends


def drivers(topology: Topology, logs: Sequence[Log]) -> Iterator[TopologyDriver]:
    """The interpreter after each log, when all time has passed."""
    for log in logs:
        driver = TopologyDriver(topology)
        for one in log:
            driver.pipe(one.topic, key=one.key, value=one.value, timestamp_ms=one.timestamp_ms, partition=one.partition)
        driver.advance_to(END_MS)
        yield driver


def _told(value: Any) -> Any:
    return round(value, 9) if isinstance(value, float) else value


def interpreted(outputs: Sequence[Any], *, streams: bool, timed: bool) -> Counter[Any]:
    """Outputs as a bag; of a table or of windows only what is there in the end."""
    kept = outputs if streams else {(one.key, one.window): one for one in outputs}.values()
    return Counter(
        (one.key, one.timestamp_ms if timed else None, *map(_told, (one.value or {}).values()))
        for one in kept
        if streams or one.value is not None
    )


def from_spark(frame: Frame, key: str, *, streams: bool, timed: bool) -> Counter[Any]:
    """The same of a recomputed result."""
    fields = [name for name in frame.columns if name not in {KEY, RESULT_TIME, IS_NULL, ORIGIN}]
    return Counter(
        (
            row[key],
            row[RESULT_TIME] if timed else None,
            *(_told(row[name]) for name in fields if not row[IS_NULL]),
        )
        for row in frame.rows()
        if streams or not row[IS_NULL]
    )
