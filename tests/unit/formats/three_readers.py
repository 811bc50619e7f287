"""Records of a topic as the stream, the recompute and the reference read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.unit.engine.engine import NOW_MS, LogRecord, arrow_batch
from tests.whole_topic import whole_topic

from recount.declare.aggregates import total
from recount.declare.operators.nodes import KEY
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.engine.stage.intake import Intake
from recount.engine.stage.polars_expressions import field_column
from recount.recompute.decoding import DecodePass
from recount.reference.records import Intake as Reference
from recount.reference.records import Taken

OUT = Topic(name="out", key="id")
Told = list[dict[str, Any] | str]


def by_stream_and_recompute(topic: Topic, records: Sequence[LogRecord], *, needs_key: bool = True) -> Told:
    """Rows with their key, and the reason where one is bad; fails where the two do not say the same."""
    [source] = Topology(name="copy", sinks=[stream(topic).to(OUT)]).sources
    assert topic.value is not None
    names = list(topic.value.fields)
    batch = arrow_batch("events", 0, 0, records)
    good, bad = Intake(source, names, needs_key=needs_key, latest_ms=NOW_MS).take(batch)
    columns = {KEY: field_column(KEY), **{name: field_column(name) for name in names}}
    rows = {row["offset"]: {name: row[column] for name, column in columns.items()} for row in good.to_dicts()}
    reasons = dict(bad.select("offset", "reason").iter_rows())
    told = [reasons[offset] if offset in reasons else rows[offset] for offset in range(len(records))]
    flow = whole_topic(source=source, needs_record_key=needs_key)
    [found] = DecodePass(flow=flow, limits={}, prefix="f.")(iter([batch]))
    recomputed = [
        row["reason"] or {KEY: row[KEY], **{name: row[f"f.{name}"] for name in names}} for row in found.to_pylist()
    ]
    assert recomputed == told
    return told


def by_all(topic: Topic, records: Sequence[LogRecord]) -> Told:
    """As ``by_stream_and_recompute``, and as the reference says."""
    told = by_stream_and_recompute(topic, records)
    per_key = stream(topic).windowed_by(tumbling("1 s", grace="0 s")).aggregate(n=total("n"))
    reference = Reference(Topology(name="sums", sinks=[per_key.emit_final().to(OUT)]))
    for number, record in enumerate(records):
        taken = reference.take(
            topic="events",
            partition=0,
            offset=number,
            timestamp_ms=0,
            key=record.key,
            value=record.value,
            wall_clock_ms=None,
        )
        found = {KEY: taken.key, **taken.fields} if isinstance(taken, Taken) else taken.reason
        assert found == told[number], record
    return told
