"""What a stream has left after a long run, held against what the reference interpreter makes of the same records."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.chaos.order_desk import Sent
from tests.integration.engine.drivers import committed

from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.output import SOURCE_HEADER, output_record
from recount.declare.topology import Topology, Written
from recount.engine.commit.batch import TopologyWork
from recount.engine.commit.output_records import output_records, record_columns
from recount.engine.stage.intake import LATE_SCHEMA
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection
from recount.kafka.dead_letters import REASON, SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC, STREAM
from recount.reference.record_clock import Output
from recount.reference.topology_driver import TopologyDriver
from recount.tables.ledger import BatchProof
from recount.tables.places import Tables

Row = tuple[Any, ...]


def log_differences(connection: Connection, sent: Sequence[Sent]) -> list[str]:
    """Where the topics do not hold the records that were sent, each once, in the order in which they were sent."""
    found = []
    for topic in sorted({one.topic for one in sent}):
        expected: dict[int, list[Row]] = {}
        for one in sent:
            if one.topic == topic:
                expected.setdefault(one.partition, []).append((one.key, one.value, one.timestamp_ms))
        actual: dict[int, list[Row]] = {}
        for record in committed(connection, topic):
            row = (record.key(), record.value(), record.timestamp()[1])
            actual.setdefault(record.partition() or 0, []).append(row)
        if expected != actual:
            counts = {number: (len(rows), len(actual.get(number, []))) for number, rows in expected.items()}
            found.append(f"{topic}: not the records that were sent (sent and found by partition: {counts})")
    return found


class Interpreted:
    """What the reference interpreter makes of all records that were sent: the truth about one topology."""

    def __init__(self, topology: Topology, sent: Iterable[Sent], wall_clock_ms: int) -> None:
        topics = {source.topic.name: source.topic.partitions for source in topology.sources}
        self.topology = topology
        self._driver = TopologyDriver(topology, partitions=topics, wall_clock_ms=wall_clock_ms)
        for one in sent:
            if one.topic in topics:
                self._driver.pipe(
                    one.topic, key=one.key, value=one.value, timestamp_ms=one.timestamp_ms, partition=one.partition
                )

    def results(self, sink: Written) -> Counter[Row]:
        """The records of a sink's topic, without the header that says what they were made of."""
        return Counter(
            _row(
                output_record(
                    {sink.key: output.key, **_bounds(output), **(output.value or {})},
                    key=sink.key,
                    fields=sink.fields,
                    timestamp_ms=output.timestamp_ms,
                    revision=output.revision,
                    origin="stream",
                    is_null=output.value is None,
                )
            )
            for output in self._driver.outputs(sink.topic.name)
        )

    @property
    def late(self) -> Counter[Row]:
        """The late ledger."""
        return Counter(
            tuple(str(getattr(late, name)) if name == "key" else getattr(late, name) for name in LATE_SCHEMA)
            for late in self._driver.late
        )

    @property
    def bad(self) -> Counter[Row]:
        """Topic, partition, offset and reason of each dead letter."""
        return Counter((bad.topic, bad.partition, bad.offset, bad.reason) for bad in self._driver.dead_letters)


def differences(truth: Interpreted, connection: Connection, root: str) -> tuple[list[str], Mapping[str, int]]:
    """In what the outputs and tables of a topology differ from ``truth``; and how many rows of each were compared."""
    topology, tables = truth.topology, Tables(root)
    pairs: dict[str, tuple[Counter[Row], Counter[Row]]] = {}
    proofs = (entry.proof for entry in TopologyWork(topology, root).history.newest_first())
    found = ranges_not_in_line(topology.name, proofs)
    for sink in topology.written:
        name = sink.topic.name
        in_kafka = [
            (record.key(), record.value(), record.timestamp()[1], tuple(record.headers() or ()))
            for record in committed(connection, name)
        ]
        in_delta = [
            (record.key, record.value, record.timestamp_ms, tuple(record.headers))
            for record in output_records(sink, record_columns(sink, pl.read_delta(tables.output(sink.table))))
        ]
        pairs[f"topic {name}"] = truth.results(sink), Counter(map(_without_source, in_kafka))
        pairs[f"table {sink.table}"] = Counter(in_kafka), Counter(in_delta)
        sources = Counter(value for *_, headers in in_kafka for key, value in headers if key == SOURCE_HEADER)
        if again := [source for source, times in sources.items() if times > 1]:
            found.append(f"topic {name}: {len(again)} records of the log led to several results: {again[:3]}")
    late = pl.read_delta(tables.late(topology.name)).select(list(LATE_SCHEMA)).rows()
    rejected = pl.read_delta(tables.rejected(topology.name)).select("topic", "partition", "offset", "reason").rows()
    pairs["late ledger"] = truth.late, Counter(late)
    pairs["rejected records"] = truth.bad, Counter(rejected)
    pairs["dead letters"] = truth.bad, Counter(_letters(topology, connection))
    for what, (expected, actual) in pairs.items():
        found += unequal(f"{what} of {topology.name}", expected, actual)
    return found, {what: actual.total() for what, (_, actual) in pairs.items()}


def unequal(what: str, expected: Counter[Row], actual: Counter[Row]) -> list[str]:
    """How many rows are missing and how many are too many, with the first of them; a row that is there twice counts."""
    missing, surplus = expected - actual, actual - expected
    if not missing and not surplus:
        return []
    some = [*(("missing", *row) for row in missing), *(("surplus", *row) for row in surplus)][:3]
    return [f"{what}: {missing.total()} missing, {surplus.total()} surplus of {expected.total()}: {some}"]


def ranges_not_in_line(stream: str, proofs: Iterable[BatchProof]) -> list[str]:
    """Where the ranges of the batches, put one behind the other, leave offsets out or have them twice."""
    reached: dict[tuple[str, int], int] = {}
    found = []
    for proof in sorted(proofs, key=lambda proof: proof.order):
        for part in proof.partitions:
            place = (part.topic, part.partition)
            if part.start != reached.get(place, 0):
                batch = f"batch {proof.generation}/{proof.batch} of {stream}"
                found.append(f"{batch} begins {place} at {part.start}, not at {reached.get(place, 0)}")
            reached[place] = part.end
    return found


def _letters(topology: Topology, connection: Connection) -> Iterable[Row]:
    """The dead letters that this stream wrote; the streams share the topic."""
    for topic in dict.fromkeys(source.topic.dead_letter_name for source in topology.sources):
        for record in committed(connection, topic):
            headers: Any = record.headers()
            said = {name: value.decode() for name, value in headers}
            if said[STREAM] == connection.group(topology.name):
                yield said[SOURCE_TOPIC], int(said[SOURCE_PARTITION]), int(said[SOURCE_OFFSET]), said[REASON]


def _bounds(output: Output) -> Mapping[str, int]:
    return {} if output.window is None else dict(zip((WINDOW_START, WINDOW_END), output.window, strict=True))


def _row(record: Any) -> Row:
    return _without_source((record.key, record.value, record.timestamp_ms, tuple(record.headers)))


def _without_source(row: Row) -> Row:
    *rest, headers = row
    return (*rest, tuple(header for header in headers if header[0] != SOURCE_HEADER))


_EVERY_S = 1.0


class ProgressWatch(threading.Thread):
    """Asks Kafka for the committed offsets of each stream; a context manager: started on entry, stopped on exit."""

    def __init__(self, connection: Connection, topologies: Sequence[Topology]) -> None:
        super().__init__(name="progress watch", daemon=True)
        self._asked: Mapping[str, tuple[Consumer, list[TopicPartition]]] = {
            topology.name: (
                connection.consumer(connection.group(topology.name)),
                [
                    TopicPartition(source.topic.name, partition)
                    for source in topology.sources
                    for partition in range(source.topic.partitions)
                ],
            )
            for topology in topologies
        }
        self._seen: dict[str, list[tuple[float, float, int]]] = {name: [] for name in self._asked}
        self._over = threading.Event()

    def __enter__(self) -> ProgressWatch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        for consumer, _partitions in self._asked.values():
            consumer.close()

    def run(self) -> None:
        """Until it is stopped; an answer that does not come, while a broker is away, is passed over."""
        while not self._over.wait(_EVERY_S):
            for stream, (consumer, partitions) in self._asked.items():
                asked_s = time.monotonic()
                try:
                    answers = consumer.committed(partitions, REQUEST_TIMEOUT_S)
                except KafkaException:
                    continue
                read = sum(max(0, answer.offset) for answer in answers)
                self._seen[stream].append((asked_s, time.monotonic(), read))

    def read(self, stream: str) -> int:
        """How many offsets the stream's last known commits cover."""
        seen = self._seen[stream]
        return seen[-1][2] if seen else 0

    def pause_s(self, stream: str, since_s: float) -> float | None:
        """From ``since_s`` (monotonic) until the stream was seen to have committed more; None as long as it has not."""
        after = [(answered_s, read) for asked_s, answered_s, read in self._seen[stream] if asked_s >= since_s]
        grown = (answered_s for answered_s, read in after if read > after[0][1])
        moved_s = next(grown, None)
        return None if moved_s is None else moved_s - since_s
