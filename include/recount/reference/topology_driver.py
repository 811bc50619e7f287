"""The unit-test driver: feed records to a topology and read what it makes of them; nothing else has to run.

>>> from recount.declare.aggregates import count
>>> from recount.declare.schema import RecordSchema, STRING
>>> from recount.declare.topics import Topic
>>> from recount.declare.topology import Topology, stream
>>> from recount.declare.windows import tumbling
>>> clicks = Topic(name="clicks", key="user_id", value=RecordSchema.of(page=STRING))
>>> per_minute = stream(clicks).windowed_by(tumbling("60 s", grace="10 s")).aggregate(clicks=count())
>>> counts = Topic(name="counts", key="user_id")
>>> driver = TopologyDriver(Topology(name="clicks-per-minute", sinks=[per_minute.emit_final().to(counts)]))
>>> driver.pipe("clicks", key="ann", value={"page": "/"}, timestamp_ms=5_000)
'counted'
>>> driver.pipe("clicks", key="bob", value={"page": "/"}, timestamp_ms=70_000)
'counted'
>>> [(out.key, out.value["clicks"], out.window) for out in driver.read("counts")]
[('ann', 1, (0, 60000))]
>>> driver.pipe("clicks", key="ann", value={"page": "/"}, timestamp_ms=6_000)
'late'
>>> [(late.offset, late.window_start, late.margin_ms) for late in driver.late]
[(2, 0, 0)]
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from recount.declare.changes import describe
from recount.declare.operators.nodes import Sink, Source
from recount.declare.operators.stateless import Through
from recount.declare.output import encode_key, encode_plain, encode_value
from recount.declare.schema import RecordSchema
from recount.declare.topology import Topology
from recount.declare.values import WHOLE
from recount.reference.interpreter import Graph
from recount.reference.record_clock import Output, table_of
from recount.reference.record_joins import ToTableOperator
from recount.reference.records import DeadLetter, Entry, Fate, Intake, LateRecord, Row
from recount.runtime.errors import Terminal, require
from recount.tables.signed_orders import SET_ASIDE, RecordPlace


class TopologyDriver:
    """Runs ``topology`` record by record.

    Records are read in the order in which they are piped: a table's changes before the records that are to find them.
    Results are those of docs/semantics.md: a final result leaves when the frontier has passed, so feed a later
    record, or ``advance_to`` a later time. A partition counts as idle until its first record, unless ``partitions``
    says how many its topic has. Without ``wall_clock_ms`` no timestamp is too far in the future. ``set_aside`` are
    records that the stream goes on without, as ``topic-partition@offset``.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        partitions: Mapping[str, int] = MappingProxyType({}),
        wall_clock_ms: int | None = None,
        set_aside: Iterable[str] = (),
    ) -> None:
        self.topology = topology
        self.wall_clock_ms = wall_clock_ms
        self._graph = Graph(topology, partitions)
        self._intake = Intake(topology, map(RecordPlace.from_text, set_aside))
        self._offsets: dict[tuple[str, int], int] = {}
        self._read: dict[str, int] = {}
        self._in_batch = False

    def pipe(
        self,
        topic: str,
        *,
        value: Mapping[str, Any] | bytes | None,
        timestamp_ms: int,
        key: str | int | bytes | Mapping[str, Any] | None = None,
        partition: int = 0,
        headers: Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]] = (),
    ) -> Fate:
        """Append a record to a source topic, and let it run through; says what became of it.

        ``value`` is the fields as a dict, or the bytes of the value, or None for a null value; fields that are headers
        are given in ``headers``, as pairs where a name occurs twice, and a ``key`` with fields as a dict. Offsets count
        from 0 per partition. Raises ``InvalidDeclaration`` for a topic that the topology does not read, and
        ``Terminal`` for a bad record where the topology fails on one.
        """
        names = sorted(source.topic.name for source in self.topology.sources)
        require(topic in names, "no-sink-of-that-name", given=topic, names=names)
        offset = self._offsets.get((topic, partition), 0)
        self._offsets[topic, partition] = offset + 1
        raw_key = self._raw_key(topic, key)
        raw_value = self._encoded(topic, value) if isinstance(value, Mapping) else self._as_given(topic, value)
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        taken = self._intake.take(
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp_ms=timestamp_ms,
            key=raw_key,
            value=raw_value,
            wall_clock_ms=self.wall_clock_ms,
            headers=[(name, one.encode() if isinstance(one, str) else one) for name, one in pairs],
        )
        if isinstance(taken, DeadLetter):
            self._set_aside(taken)
            entry = Entry(topic=topic, partition=partition, offset=offset, timestamp_ms=timestamp_ms)
            self._graph.journal.fates[entry] = "dead-lettered"
            return "dead-lettered"
        for source in self._sources(topic):
            self._graph.feed(source, taken.entry, taken.row(source), is_null=raw_value is None)
        raised = self._graph.journal.raised.get(taken.entry)
        if raised:
            letter = DeadLetter(
                topic=topic,
                partition=partition,
                offset=offset,
                timestamp_ms=taken.entry.timestamp_ms,
                key=raw_key,
                value=raw_value,
                reason=raised[0],
                detail=raised[1],
            )
            self._set_aside(letter)
        self._graph.settle(taken.entry)
        if not self._in_batch:
            self._graph.end_batch()
        return self._graph.journal.fates[taken.entry]

    @contextmanager
    def batch(self) -> Iterator[None]:
        """The records piped inside are one batch: ``emit_each_batch`` gives one update per key; else each is one."""
        self._in_batch = True
        yield
        self._in_batch = False
        self._graph.end_batch()

    def advance_to(self, timestamp_ms: int) -> None:
        """Let event time pass: as if every source partition had been read up to ``timestamp_ms``."""
        self._graph.advance(timestamp_ms)
        self._graph.end_batch()

    def idle(self, topic: str, partition: int | None = None) -> None:
        """The partition (None: every one of the topic) is idle: the frontier waits for it no more, until it speaks."""
        self._graph.declare_idle(topic, partition)
        self._graph.end_batch()

    def read(self, topic: str) -> list[Output]:
        """Outputs written to a sink's topic since the last ``read`` of it."""
        outputs = self.outputs(topic)
        start, self._read[topic] = self._read.get(topic, 0), len(outputs)
        return list(outputs[start:])

    def outputs(self, topic: str) -> Sequence[Output]:
        """All that was ever written to a sink's topic."""
        names = sorted(self._graph.written)
        require(topic in names, "no-source-of-that-name", given=topic, names=names)
        return self._graph.written[topic]

    def table(self, name: str) -> list[Row]:
        """The rows of a sink's table, or of the table that is read from the topic ``name``, as they are now."""
        for node, operator in self._graph.operators.items():
            if isinstance(node, Sink | Through) and node.table == name:
                return table_of(self.outputs(node.topic.name))
            if isinstance(operator, ToTableOperator) and _topic_of(operator) == name:
                return operator.rows()
        names = [node.table for node in self._graph.operators if isinstance(node, Sink | Through)]
        require(False, "no-table-of-that-name", given=name, names=names)
        raise AssertionError

    @property
    def late(self) -> list[LateRecord]:
        """The late ledger: one row per late record and window."""
        return self._graph.journal.late

    @property
    def dead_letters(self) -> list[DeadLetter]:
        return self._graph.journal.dead_letters

    @property
    def fate_of(self) -> Mapping[Entry, Fate]:
        """The fate of each record, by the place where it entered."""
        return self._graph.journal.fates

    @property
    def fates(self) -> dict[Fate, int]:
        """How many records were counted, late, filtered, ...: they add up to the records piped."""
        return self._graph.journal.count()

    def describe(self) -> str:
        """The topology as text."""
        return describe(self.topology)

    def _encoded(self, topic: str, value: Mapping[str, Any]) -> bytes | None:
        plain = self._sources(topic)[0].topic.plain_field
        if plain is None:
            return encode_value(value)
        require(value.keys() == {plain}, "driver-plain-value", given=sorted(value), plain=plain, topic=topic)
        return encode_plain(value[plain])

    def _raw_key(self, topic: str, key: str | int | bytes | Mapping[str, Any] | None) -> bytes | None:
        declared = self._sources(topic)[0].topic
        is_whole = isinstance(declared.value, RecordSchema) and declared.value.reads_whole_key
        if isinstance(key, Mapping) or (is_whole and isinstance(key, str | int)):
            require(
                isinstance(key, Mapping) == (bool(declared.key_fields) and not is_whole),
                "driver-key",
                given=type(key).__name__,
                topic=topic,
            )
            return encode_value(key if isinstance(key, Mapping) else {WHOLE[0]: key})
        require(
            key is None or not declared.key_fields or (isinstance(key, bytes) and declared.key_form == "json"),
            "driver-key-mapping",
            given=type(key).__name__,
            topic=topic,
        )
        return key if isinstance(key, bytes) else encode_key(key)

    def _as_given(self, topic: str, value: bytes | None) -> bytes | None:
        require(
            value is None or not self._sources(topic)[0].topic.is_of_registry,
            "driver-value-mapping",
            given="bytes",
            topic=topic,
        )
        return value

    def _set_aside(self, letter: DeadLetter) -> None:
        if self.topology.on_bad_record == "fail" and letter.reason != SET_ASIDE:
            raise Terminal.of(
                "bad-record-fails",
                given=f"{letter.topic}-{letter.partition}@{letter.offset}: {letter.reason}, {letter.detail}",
            )
        self.dead_letters.append(letter)

    def _sources(self, topic: str) -> list[Source]:
        nodes = self.topology.nodes()
        return [node for node in nodes if isinstance(node, Source) and node.topic.name == topic]


def _topic_of(operator: ToTableOperator) -> str | None:
    source = operator.node.input
    return source.topic.name if isinstance(source, Source) else None
