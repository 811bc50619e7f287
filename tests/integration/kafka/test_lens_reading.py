"""The lens reads what Kafka still has from Kafka, what is older from the archive, and refuses a log with holes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from confluent_kafka import TopicPartition
from deltalake import write_deltalake
from tests.integration.kafka.conftest import MakeTopic

from recount.advise.lens_log import records_of
from recount.advise.lens_model import Span
from recount.kafka.connection import Connection
from recount.runtime.errors import Terminal
from recount.tables.places import Tables


def span(topic: str, end: int) -> Span:
    bounds = {0: np.array([0, end], np.int64)}
    return Span(
        topic=topic,
        recorded_bounds=bounds,
        recorded_ms=np.array([1], np.int64),
        bounds=bounds,
        judged_from={0: 0},
        records={0: end},
        reached_ms={},
    )


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
        list(records_of(span(topic, 10), connection, tables))
    assert (refused.value.given, refused.value.expected) == (
        "4 records at offsets 0 to 10",
        "10 records, as its ledger says",
    )
    archive(tables, topic, range(8))
    archived, on_kafka = records_of(span(topic, 10), connection, tables)
    assert (list(archived.offsets), list(on_kafka.offsets)) == ([0, 1, 2, 3, 4, 5], [6, 7, 8, 9])
    assert [*archived.values, *on_kafka.values] == [b"%d" % number for number in range(10)]
    assert [*archived.timestamps_ms, *on_kafka.timestamps_ms] == list(range(1_000, 1_010))
    assert set(archived.keys) | set(on_kafka.keys) == {b"k"}
