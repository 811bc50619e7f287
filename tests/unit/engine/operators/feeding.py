"""Operators fed with the rows of a log, batch by batch, with restarts; and the interpreter beside them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import polars as pl
from hypothesis import settings
from hypothesis import strategies as st

from recount.declare.columns import IS_NULL, REVISION, STREAM_TIME, TIMESTAMP
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table, stream
from recount.declare.operators.nodes import KEY, Node, Sink, Source
from recount.declare.operators.stateless import Foreach, Through
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.engine.operators.batch_graph import operators_of
from recount.engine.operators.batch_operator import FATES, TIMES_SCHEMA, TURN, Batch, Operator
from recount.engine.operators.batch_rows import (
    ENTRY,
    LOG_ORDER,
    OFFSET,
    ORDER,
    PARTITION,
    REACHED,
    SUPERSEDED,
    TOPIC,
    WITHIN,
    rows_schema,
)
from recount.engine.stage.map_stage import LATE_SCHEMA
from recount.engine.stage.polars_expressions import field_column
from recount.engine.state.keyed_rows import DELETED, KeyedRows
from recount.reference.topology_driver import TopologyDriver

PARTITIONS = 2
LEFT = Topic(name="left", key="id", value=RecordSchema.of(l=LONG, word=STRING))
RIGHT = Topic(name="right", key="id", value=RecordSchema.of(r=LONG, other=STRING))
OUT = Topic(name="out", key="k")
END_MS = 100_000
law = settings(max_examples=int(os.environ.get("LAW_EXAMPLES", "5")), deadline=None)
"""A longer run: ``LAW_EXAMPLES=5000 pytest --hypothesis-seed=1 tests/unit/engine/operators/test_stream_joins.py``."""


@dataclass(frozen=True)
class Event:
    """A record of the log; a ``value`` None is a null value, a ``key`` None a null key."""

    timestamp_ms: int
    key: str | None = "a"
    value: Mapping[str, Any] | None = field(default_factory=dict)
    partition: int = 0
    topic: str = "left"


keys, partitions, times = st.sampled_from(["a", "b", None]), st.integers(0, PARTITIONS - 1), st.integers(0, 60)
left_values = st.none() | st.fixed_dictionaries({"l": st.integers(0, 3), "word": keys})
right_values = st.none() | st.fixed_dictionaries({"r": st.integers(0, 3), "other": keys})
events = st.builds(Event, times, keys, left_values, partitions, st.just("left")) | st.builds(
    Event, times, keys, right_values, partitions, st.just("right")
)
logs = st.lists(events, max_size=30)
cuts = st.lists(st.integers(0, 30), max_size=6)
restarts = st.frozensets(st.integers(0, 8))

Batches = Sequence[Sequence[Event]]
Result = tuple[Any, ...]


def keyed(topic: Topic) -> RecordStream:
    """The topic's records under the key ``k``, which may be null."""
    assert topic.value is not None
    return stream(topic).select_key(k=col(KEY)).select(*topic.value.fields)


def topology(flow: RecordStream | Table) -> Topology:
    """A topology that ends in ``flow``."""
    return Topology(name="fed", sinks=[flow.to(OUT)])


def closing(*topics: str, partitions: int = PARTITIONS) -> list[Event]:
    """A record in every partition, so that all time before it has passed; its key and word are met nowhere else."""
    places = [(topic, partition) for topic in topics for partition in range(partitions)]
    fields_of = {"left": ("l", "word"), "right": ("r", "other")}
    names = {place: "closing {} {}".format(*place) for place in places}
    values = {(t, p): dict(zip(fields_of[t], (99, name), strict=True)) for (t, p), name in names.items()}
    return [Event(END_MS, name, values[place], place[1], place[0]) for place, name in names.items()]


def topics(topology: Topology) -> list[str]:
    """The topics that it reads."""
    return [source.topic.name for source in topology.sources]


def read_by(topology: Topology, log: Iterable[Event]) -> list[Event]:
    """The records of the topics that it reads."""
    return [event for event in log if event.topic in topics(topology)]


def by_partition(batch: Iterable[Event], first: str = "left") -> list[Event]:
    """The records of a batch as an operator gets them: by partition, the topic ``first`` before the other."""
    return sorted(batch, key=lambda event: (event.topic != first, event.partition))


def cut(log: Sequence[Event], at: Iterable[int]) -> list[Sequence[Event]]:
    """``log`` in batches, some of which may be empty."""
    bounds = [0, *sorted(min(place, len(log)) for place in at), len(log)]
    return [log[start:end] for start, end in pairwise(bounds)]


@dataclass
class Fed:
    """The operators of a topology at work, and all that they said; ``disk`` is where their states are written to."""

    topology: Topology
    partitions: int = PARTITIONS
    reads_by_partition: bool = True
    written: list[Result] = field(default_factory=list)
    late: list[Result] = field(default_factory=list)
    fates: dict[tuple[str, int, int], str] = field(default_factory=dict)
    disk: dict[tuple[int, str], KeyedRows] = field(default_factory=dict)
    _ends: Counter[tuple[str, int]] = field(default_factory=Counter)
    _times: dict[tuple[str, int], int] = field(default_factory=dict)
    operators: dict[Node, Operator] = field(default_factory=dict)
    made: dict[Node, pl.DataFrame] = field(default_factory=dict)
    """The rows of each operator in the last batch."""
    changed: list[int] = field(default_factory=list)
    """How many rows of states each batch wrote."""

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget all that is not on disk."""
        self.operators = operators_of(node for node in self.topology.nodes() if not isinstance(node, Source))
        for place, state in self._states().items():
            if place in self.disk:
                state.load(self.disk[place].rows.sample(fraction=1, shuffle=True, seed=place[0]))

    def batch(self, events: Sequence[Event], quiet: Iterable[int] = ()) -> None:
        """Feed one batch, in which the partitions ``quiet`` are idle, and write what has changed of the states."""
        stood = dict[tuple[str, int], int | None](self._times)
        read = self._read(events)
        known = {(topic, partition) for topic in topics(self.topology) for partition in range(self.partitions)}
        awake = {(topic, partition) for topic, partition in known if partition not in quiet}
        reached = read.group_by(TOPIC, PARTITION).agg(pl.col(REACHED).max()).iter_rows()
        batch = Batch(
            reached={(topic, partition): ms for topic, partition, ms in reached},
            stood=stood,
            times=read.select(list(TIMES_SCHEMA)),
            known=known,
            awake=awake,
            entered=[read.select(TURN)],
        )
        made = self.made = dict[Node, pl.DataFrame]()
        for node in self.topology.nodes():
            if isinstance(node, Source):
                made[node] = _source_rows(node, events, read)
                continue
            inputs = [made[above] for above in node.inputs]
            output = self.operators[node].process(batch, inputs)
            assert dict(output.rows.schema) == rows_schema(node.fields), node
            made[node] = output.rows
            self.late += chain.from_iterable(part.iter_rows() for part in output.late)
            for part in output.fates:
                self._note(part)
            if isinstance(node, Sink):
                self.written += written(node, output.rows)
        for place in read.select(ENTRY).iter_rows():
            self.fates.setdefault(place, "filtered")
        self.changed.append(0)
        for place, state in self._states().items():
            self.changed[-1] += _write(self.disk.setdefault(place, KeyedRows(state.schema, state.identity)), state)

    def held(self) -> dict[str, int]:
        """How many rows each state holds."""
        return {name: state.rows.height for (_, name), state in self._states().items() if "clock" not in name}

    def _states(self) -> dict[tuple[int, str], KeyedRows]:
        found = {}
        for index, operator in enumerate(self.operators.values()):
            found |= {(index, name): state for name, state in operator.states.items()}
            found |= {(index, f"clock {name}"): clock.state for name, clock in operator.clocks.items()}
        return found

    def _note(self, fates: pl.DataFrame) -> None:
        for topic, partition, offset, fate in fates.iter_rows():
            place = topic, partition, offset
            self.fates[place] = min(fate, self.fates.get(place, fate), key=FATES.index)

    def _read(self, events: Sequence[Event]) -> pl.DataFrame:
        read = []
        for index, event in enumerate(events):
            source = event.topic, event.partition
            self._times[source] = max(event.timestamp_ms, self._times.get(source, event.timestamp_ms))
            read.append((*source, self._ends[source], event.timestamp_ms, index))
            self._ends[source] += 1
        frame = pl.DataFrame(read, {**TIMES_SCHEMA, "index": pl.Int64()}, orient="row").with_columns(
            pl.col(TIMESTAMP).cum_max().over(TOPIC, PARTITION).alias(REACHED)
        )
        return frame.sort(TOPIC, PARTITION, OFFSET) if self.reads_by_partition else frame


def _source_rows(node: Source, events: Sequence[Event], read: pl.DataFrame) -> pl.DataFrame:
    mine = read.filter(pl.col(TOPIC) == node.topic.name)
    taken = [events[index] for index in mine["index"]]
    schema = rows_schema(node.fields)
    assert node.topic.value is not None
    columns = {field_column(name): [(e.value or {}).get(name) for e in taken] for name in node.topic.value.fields}
    columns |= {field_column(node.key): [e.key for e in taken], IS_NULL: [e.value is None for e in taken]}
    known = {
        name: pl.lit(value) for name, value in {REVISION: 0, SUPERSEDED: False, WITHIN: "", STREAM_TIME: None}.items()
    }
    rows = mine.with_columns(pl.Series(name, values, schema[name]) for name, values in columns.items())
    return rows.with_columns(LOG_ORDER.alias(ORDER), **known).select(
        pl.col(name).cast(kind) for name, kind in schema.items()
    )


def written(node: Sink | Through | Foreach, rows: pl.DataFrame) -> list[Result]:
    """What a sink writes: key, value, time, revision."""
    return [
        result(
            row[field_column(node.key)],
            None if row[IS_NULL] else {name: row[field_column(name)] for name in node.fields if name != KEY},
            row[TIMESTAMP],
            row[REVISION],
        )
        for row in rows.iter_rows(named=True)
    ]


def result(key: Any, value: Mapping[str, Any] | None, timestamp_ms: int, revision: int) -> Result:
    """Something to compare and to sort."""
    return key, None if value is None else tuple(value.items()), timestamp_ms, revision


def fed(topology: Topology, batches: Batches, restarts: Iterable[int] = (), partitions: int = PARTITIONS) -> Fed:
    """The operators after ``batches``, restarted before those numbered in ``restarts``."""
    running, again = Fed(topology, partitions), set(restarts)
    for number, events in enumerate(batches):
        if number in again:
            running.restart()
        running.batch(events)
    return running


@dataclass
class Interpreted:
    """The interpreter, fed with the same log."""

    topology: Topology
    partitions: int = PARTITIONS
    driver: TopologyDriver = field(init=False)

    def __post_init__(self) -> None:
        known = {source.topic.name: self.partitions for source in self.topology.sources}
        self.driver = TopologyDriver(self.topology, partitions=known)

    def feed(self, events: Iterable[Event]) -> Interpreted:
        """Pipe the events in the order given."""
        for e in events:
            self.driver.pipe(e.topic, key=e.key, value=e.value, timestamp_ms=e.timestamp_ms, partition=e.partition)
        return self

    @property
    def written(self) -> list[Result]:
        """What the sink wrote."""
        return [result(o.key, o.value, o.timestamp_ms, o.revision) for o in self.driver.outputs("out")]

    @property
    def late(self) -> list[Result]:
        """The late ledger in the engine's columns."""
        return sorted(
            tuple(getattr(late, name) if name != "key" or late.key is None else str(late.key) for name in LATE_SCHEMA)
            for late in self.driver.late
        )

    @property
    def fates(self) -> dict[tuple[str, int, int], str]:
        """What became of each record."""
        found = self.driver.fate_of
        return {(e.topic, e.partition, e.offset): fate.replace(" ", "_") for e, fate in found.items()}


def interpreted(topology: Topology, events: Iterable[Event], partitions: int = PARTITIONS) -> Interpreted:
    """The interpreter after ``events``."""
    return Interpreted(topology, partitions).feed(events)


def latest(results: Iterable[Result]) -> dict[Any, Result]:
    """The last result of each key."""
    return {one[0]: one for one in results}


def multiset(results: Iterable[Result]) -> Counter[Result]:
    """Results whose order says nothing."""
    return Counter(results)


def assert_same(engine: Fed, reference: Interpreted) -> None:
    """Equal results, late ledger and fates, in whatever order."""
    assert multiset(engine.written) == multiset(reference.written)
    assert multiset(engine.late) == multiset(reference.late)
    assert engine.fates == reference.fates


def _write(disk: KeyedRows, state: KeyedRows) -> int:
    changes = state.changes()
    disk.remove(changes.filter(DELETED))
    disk.put(changes.filter(~pl.col(DELETED)))
    assert disk.rows.sort(disk.identity).equals(state.rows.sort(disk.identity))
    return changes.height
