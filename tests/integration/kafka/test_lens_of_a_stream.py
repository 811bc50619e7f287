"""``recount lens`` on a topic and on the ledger of the stream that has read it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import typer
from tests.integration.kafka.conftest import MakeTopic
from tests.unit.serve.written_streams import WrittenStream, recorded_ms
from tests.unit.topologies.shop_log import Arrival
from typer.testing import CliRunner

from recount.advise.lens_command import lens
from recount.kafka.connection import Connection
from recount.runtime.settings import Settings

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
