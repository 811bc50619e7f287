"""``recount lens`` on a topic and the ledger of its stream; what Kafka has no more is read from the archive."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from confluent_kafka import TopicPartition
from deltalake import write_deltalake
from tests.integration.kafka.conftest import MakeTopic

from recount.advise.lens_log import CUTS, PARTS, Span, records_of
from recount.kafka.connection import Connection
from recount.runtime.errors import Terminal
from recount.tables.places import Tables

MODULE = """
from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.schema import RecordSchema, STRING
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling

clicks = Topic(name="{topic}", key="id", value=RecordSchema.of(user=STRING))
counts = stream(clicks).select_key(user=col("user")).windowed_by(tumbling("10 s", grace="0 s"))
clicks_per_user = Topology(
    name="clicks-per-user", sinks=[counts.aggregate(n=count()).emit_final().to(Topic(name="counts", key="user"))]
)
"""


def ten_of(topic: str) -> Span:
    parts = pl.DataFrame([(0, 0, 0, 10, 10, 1)], PARTS, orient="row")
    return Span(topic=topic, parts=parts, cuts=parts.select(*CUTS), reached_ms={})


def archive(tables: Tables, topic: str, offsets: range) -> None:
    rows = {
        "partition": [0] * len(offsets),
        "offset": list(offsets),
        "timestamp_ms": [1_000 + offset for offset in offsets],
        "key": [b"k"] * len(offsets),
        "value": [b"%d" % offset for offset in offsets],
        "headers": [[] for _ in offsets],
    }
    headers = pl.List(pl.Struct({"key": pl.String(), "value": pl.Binary()}))
    types = {"partition": pl.Int32(), "offset": pl.Int64(), "timestamp_ms": pl.Int64(), "headers": headers}
    write_deltalake(tables.archive(topic), pl.DataFrame(rows, schema_overrides=types))


def test_a_log_is_read_from_the_archive_and_then_from_kafka(
    connection: Connection, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, tables = make_topic("log"), Tables(str(tmp_path))
    producer = connection.producer()
    for number in range(10):
        producer.produce(topic, key=b"k", value=b"%d" % number, timestamp=1_000 + number)
    producer.flush(10)
    admin = connection.admin()
    for answer in admin.delete_records([TopicPartition(topic, 0, 6)]).values():
        answer.result()
    with pytest.raises(Terminal) as refused:
        list(records_of(ten_of(topic), connection, tables))
    assert (refused.value.given, refused.value.expected) == (
        "4 records at offsets 0 to 10",
        "10 records, as its ledger says",
    )
    archive(tables, topic, range(8))
    archived, on_kafka = (one.to_pydict() for one in records_of(ten_of(topic), connection, tables))
    assert (archived["offset"], on_kafka["offset"]) == ([0, 1, 2, 3, 4, 5], [6, 7, 8, 9])
    assert [*archived["value"], *on_kafka["value"]] == [b"%d" % number for number in range(10)]
    assert [*archived["timestamp_ms"], *on_kafka["timestamp_ms"]] == list(range(1_000, 1_010))
    assert set(archived["key"]) | set(on_kafka["key"]) == {b"k"}
