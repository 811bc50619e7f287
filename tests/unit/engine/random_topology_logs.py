"""Random logs for random topologies: out of order, late, with nulls, ties, bad records and times; cut into batches."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from tests.unit.engine import wide_values
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.random_topologies import Drawn

CLOSING_MS, FUTURE_MS, IDLE_AFTER_MS = 100_000, 10_000_000, 60_000
"""When everything of the log is over; a time that is absurd; how long a partition is silent until it is idle."""


BAD_VALUES = (b"{", b"[]", b'{"ln": "1", "rn": "1", "tn": "1", "vn": "1"}', b"\xff")


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
        **{name: st.sampled_from(values) for name, values in wide_values.VALUES.items()},
    }
    at = TIMES if letter == "r" else st.none()
    whole = st.fixed_dictionaries({letter + name: value for name, value in {**fields, "at": at}.items()})
    good = whole.map(lambda value: json.dumps(value).encode())
    return seldom(good, st.none() | st.sampled_from(BAD_VALUES))


VALUES = {topic: values_of(topic[0]) for topic in ("left", "right", "table", "versions")}


@st.composite
def events(draw: Any, drawn: Drawn) -> Event:
    """A record, now and then a bad one."""
    topic = draw(st.sampled_from(sorted(drawn.partitions)))
    key = draw(st.sampled_from([b"a", b"a", b"a", b"a", b"b", b"b", b"b", None, b"\xff"]))
    moved = draw(seldom(st.just(0), st.integers(1, 2))) if drawn.moves else 0
    partition = int(key == b"b") + moved if drawn.by_key else draw(st.integers(0, 2))
    return Event(
        topic,
        LogRecord(
            partition=partition % drawn.partitions[topic], timestamp_ms=draw(TIMES), key=key, value=draw(VALUES[topic])
        ),
    )


@st.composite
def logs(draw: Any, drawn: Drawn) -> list[Cut]:
    """Batches of a log; the partitions become idle only where the topology's results do not depend on when."""
    # Hypothesis would draw short lists, in which little meets
    least = draw(st.sampled_from([0, 8, 16, 24]))
    log = draw(st.lists(events(drawn), min_size=least, max_size=least + 8))
    pauses = st.sampled_from([0, 0, IDLE_AFTER_MS] if drawn.idles else [0])
    cuts = [Cut(batch, draw(pauses), draw(st.booleans())) for batch in draw(batches(log, sorted(drawn.partitions)))]
    return [*cuts, closing(drawn.partitions)]


@st.composite
def batches(draw: Any, log: Sequence[Event], topics: Sequence[str]) -> list[list[Event]]:
    """``log`` cut, now and then each topic by itself: a batch may starve one of them and be far ahead in another."""
    many = draw(st.integers(1, 4))
    together = draw(st.booleans())
    bounds = {}
    for topic in ["all"] if together else topics:
        length = len(log) if together else sum(event.topic == topic for event in log)
        bounds[topic] = sorted(draw(st.lists(st.integers(0, length), min_size=many - 1, max_size=many - 1)))
    found: list[list[Event]] = [[] for _ in range(many)]
    read = dict.fromkeys(bounds, 0)
    for event in log:
        topic = "all" if together else event.topic
        found[bisect_right(bounds[topic], read[topic])].append(event)
        read[topic] += 1
    return found


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
