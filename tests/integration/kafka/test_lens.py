"""``recount lens`` on a topic and the ledger of its stream; what Kafka has no more is read from the archive."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import polars as pl
import pytest
import typer
from confluent_kafka import TopicPartition
from deltalake import write_deltalake
from tests.integration.kafka.conftest import MakeTopic
from tests.unit.serve.written_streams import WrittenStream, recorded_ms
from tests.unit.topologies.shop_log import Arrival
from typer.testing import CliRunner

from recount.advise.lens_command import lens
from recount.advise.lens_log import CUTS, PARTS, Span, records_of
from recount.kafka.connection import Connection
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
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
SECONDS = [[(0, 1), (1, 2)], [(0, 61)], [(0, 62)], [(1, 3)]]
"""By batch: partition and event time of each click."""


def test_a_partition_behind_the_others_is_lost_to_both_engines(
    connection: Connection, make_topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic("clicks", partitions=2)
    (tmp_path / "clicks_of_a_test.py").write_text(MODULE.format(topic=topic))
    monkeypatch.syspath_prepend(tmp_path)
    topology = importlib.import_module("clicks_of_a_test").clicks_per_user
    value = b'{"user": "ann"}'
    cuts = [
        [Arrival(topic=topic, partition=p, key="k", value=value, timestamp_ms=second * 1_000) for p, second in batch]
        for batch in SECONDS
    ]
    WrittenStream(topology, tmp_path / "data").write(cuts)
    producer = connection.producer()
    for arrival in (one for cut in cuts for one in cut):
        producer.produce(topic, arrival.value, "k", arrival.partition, timestamp=arrival.timestamp_ms)
    producer.flush(10)
    places = dict.fromkeys(("checkpoints", "reports", "logs", "run", "jars"), str(tmp_path))
    here = Settings(
        profile="embedded",
        bootstrap_servers=connection.bootstrap_servers,
        data=str(tmp_path / "data"),
        topologies="clicks_of_a_test",
        **places,
    )
    for name, setting in here.to_environment().items():
        monkeypatch.setenv(name, setting)
    app = typer.Typer()
    app.command()(lens)

    ended = CliRunner().invoke(app, ["clicks-per-user", "--start", str(recorded_ms(3)), "--json"])
    assert ended.exception is None, ended.exception
    said = json.loads(ended.output)
    assert (said["records"], said["results"], said["late"]) == (1, 1, 0)
    for engine in said["engines"]:
        assert (engine["dropped"], engine["changed"]) == ({"least": 1, "most": 1}, {"least": 1, "most": 1})
        [record] = engine["records"]
        assert (record["place"], record["key"], record["is_certain"]) == (f"{topic}-1@1", "ann", True)
        [result] = engine["results"]
        assert result["ours"]["n"] == 3
        assert [row["n"] for row in result["theirs_at_least_dropped"]] == [2]

    shown = CliRunner().invoke(app, ["clicks-per-user"]).output
    assert "5 records in 2 results; late by Recount itself: 0; 4 batches" in shown
    assert "5 records read and judged in" in shown


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
