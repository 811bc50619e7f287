"""Logs of clicks for tests of the lens, batch by batch, as the ledger and the topic would have them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from tests.batch_proofs import a_proof

from recount.advise.lens_answer import COUNTS, Figures, LensAnswer, looked_at
from recount.advise.lens_log import LOG, Modelled, Reaching, Span, reaching, span_of
from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import SessionWindows, TimeWindows, hopping, session, tumbling
from recount.tables.ledger import BatchProof, PartitionProof

CLICKS = Topic(name="clicks", key="user", value=RecordSchema.of(user=STRING, n=LONG))
OUT = Topic(name="out", key="user")
Click = tuple[int, int, str]
"""Partition, event time in ms, user."""
WINDOWS: tuple[TimeWindows | SessionWindows, ...] = (
    tumbling("10 ms", grace="0 ms"),
    tumbling("10 ms", grace="7 ms", origin="3 ms"),
    hopping("10 ms", advance="4 ms", grace="5 ms"),
    session("5 ms", grace="3 ms"),
)


def kept_key(windows: TimeWindows | SessionWindows) -> Topology:
    """Counts by the key of the record."""
    counted = stream(CLICKS).windowed_by(windows).aggregate(clicks=count()).emit_final()
    return Topology(name="clicks", sinks=[counted.to(OUT)])


def keyed_again(windows: TimeWindows | SessionWindows, tasks: int | None = None) -> Topology:
    """Counts by a field of the value, in so many tasks."""
    flow = stream(CLICKS).select_key(user=col("user"))
    flow = flow if tasks is None else flow.repartition(tasks)
    return Topology(name="clicks", sinks=[flow.windowed_by(windows).aggregate(clicks=count()).emit_final().to(OUT)])


def in_log(topic: str, partition: int, *records: tuple[int, int, bytes | None, Any]) -> pa.RecordBatch:
    """Records as they lie in the log: offset, time, key, and value, as JSON unless it is bytes or none."""
    rows: list[dict[str, Any]] = [
        {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp_ms": ms,
            "key": key,
            "headers": [],
            "value": json.dumps(value).encode() if isinstance(value, dict) else value,
        }
        for offset, ms, key, value in records
    ]
    return pa.RecordBatch.from_pylist(rows, LOG)


@dataclass(frozen=True)
class ClickLog:
    """What each batch has read, recorded at 1, 2, 3, … s after all event times."""

    batches: Sequence[Sequence[Click]]
    partitions: int = 2

    def clicks(self, partition: int) -> list[Click]:
        return [click for batch in self.batches for click in batch if click[0] == partition]

    @property
    def proofs(self) -> list[BatchProof]:
        """Newest first."""
        found = []
        ends, reached = dict.fromkeys(range(self.partitions), 0), dict[int, int]()
        for number, batch in enumerate(self.batches):
            parts = []
            for p in range(self.partitions):
                mine = [time_ms for partition, time_ms, _ in batch if partition == p]
                start, ends[p] = ends[p], ends[p] + len(mine)
                reached.update({p: max([*mine, reached.get(p, 0)])} if mine else {})
                part = PartitionProof(
                    topic="clicks",
                    partition=p,
                    start=start,
                    end=ends[p],
                    records=len(mine),
                    stream_time_ms=reached.get(p),
                )
                parts.append(part)
            found.append(a_proof(number, *parts, batch_timestamp_ms=(number + 1) * 1_000))
        return found[::-1]

    def records(self, span: Span) -> Iterator[pa.RecordBatch]:
        for p, (start, end) in span.ranges.items():
            mine = self.clicks(p)[start:end]
            values = [{"user": user, "n": n} for n, (_, _, user) in enumerate(mine)]
            places = zip(range(start, end), mine, values, strict=True)
            yield in_log("clicks", p, *((at, ms, user.encode(), value) for at, (_, ms, user), value in places))

    def span(self, topology: Topology, start_ms: int | None = None, end_ms: int | None = None) -> Span:
        return span_of(Modelled.of(topology), self.proofs, start_ms, end_ms)

    def reaching(self, topology: Topology) -> Reaching:
        span = self.span(topology)
        return reaching(Modelled.of(topology), span, self.records(span))

    def answer(
        self,
        topology: Topology,
        start_ms: int | None = None,
        end_ms: int | None = None,
        batch_records: int | None = None,
    ) -> LensAnswer:
        span = self.span(topology, start_ms, end_ms)
        if batch_records is not None:
            span = span.in_batches_of(batch_records)
        return looked_at(Modelled.of(topology), span, self.records(span), first=100)


def engines(answer: LensAnswer) -> tuple[Figures, Figures]:
    """Kafka Streams and Structured Streaming."""
    kafka_streams, structured_streaming = answer.said["engines"]
    return kafka_streams, structured_streaming


def counted(engine: Figures) -> dict[str, Any]:
    """The counts, each as least and most."""
    return {name: (engine[name]["least"], engine[name]["most"]) for name in COUNTS.values()}


def click_logs(partitions: int = 2, batch: int = 6) -> st.SearchStrategy[ClickLog]:
    """Any log of few users in a short time, so that much is late and much falls together."""
    click = st.tuples(st.integers(0, partitions - 1), st.integers(0, 60), st.sampled_from(["ann", "bob", "tom"]))
    logs = st.lists(st.lists(click, min_size=1, max_size=batch), min_size=1, max_size=6)
    return logs.map(lambda batches: ClickLog(batches, partitions))
