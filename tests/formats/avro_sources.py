"""Streams of Avro values by a real schema registry, and their audits: green, and red once something is altered."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.formats import avro_payments
from tests.formats.apicurio import Registry, java, running
from tests.formats.avro_payments import COMPATIBLE, FIRST, INCOMPATIBLE, amounts, copied, paid, payments
from tests.formats.registry_streams import letters, outcome, port_of, run, send, settings_for
from tests.integration.spark.drivers import committed, delta_rows
from tests.local_spark import TINY, local_session

from recount.audit.published_avro import fields_of
from recount.codec.avro_encoder import avro_encoder
from recount.codec.sink_schemas import schema_id, sink_schema
from recount.core.output import REVISION_HEADER
from recount.core.registry import declared
from recount.core.registry_errors import VARIABLE, RegistryUnreachable, SchemaRefused
from recount.core.schema import LONG, STRING, decimal
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.kafka.connection import Connection
from recount.kafka.declared import all_topics
from recount.kafka.topics import apply, plan
from recount.local.kafka import EmbeddedKafka
from recount.local.ports import free_ports
from recount.local.project import Project
from recount.sessions import task_environment

MINUTE_MS = 60_000
JAVA = java()

pytestmark = [
    pytest.mark.skipif(JAVA is None, reason="Apicurio Registry needs a JDK 21 or later beside the one in use"),
    pytest.mark.timeout(600),  # with the archive of the registry to be fetched
]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, kafka: EmbeddedKafka, project: Project) -> Settings:
    return settings_for(avro_payments, tmp_path_factory.mktemp("avro"), kafka, project)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory, project: Project, settings: Settings) -> Iterator[SparkSession]:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder = tmp_path_factory.mktemp("spark")
    session = local_session(str(project.spark_jars), folder, **TINY, **task_environment(settings))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, settings.schema_registry)  # of a driver, which sinks in Avro need
        yield session
    session.stop()


def _value(schema_id: int, schema: Any, *, at_ms: int, **row: Any) -> bytes:
    """Of a payment 999 microseconds after ``at_ms``."""
    written = BytesIO()
    row |= {"at": 1_000 * at_ms + 999, "day": date(2024, 2, 29), "receipt": b"\x01\x02"}
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), row)
    return b"\0" + schema_id.to_bytes(4, "big") + written.getvalue()


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory, settings: Settings, project: Project) -> None:
    """The topics, with all payments."""
    assert JAVA is not None
    connection = Connection.of(settings)
    topics = all_topics(declared(settings.topologies), connection.own)
    apply(connection.admin(), plan(connection.admin(), topics, "embedded"))
    log = tmp_path_factory.mktemp("registry") / "registry.log"
    with running(project, log, JAVA, port_of(settings)) as registry:
        send(settings, payments, _payments(registry))


@pytest.mark.usefixtures("sent")
def test_a_stream_of_avro_is_audited_green_and_red_once_a_row_is_altered(
    tmp_path: Path, spark: SparkSession, settings: Settings, project: Project
) -> None:
    assert JAVA is not None
    # nobody answers: nothing is dead-lettered, the batch is tried again
    with pytest.raises(RegistryUnreachable):
        run(spark, settings, paid)
    assert letters(settings, payments) == []
    assert _rows(settings) == []

    with running(project, tmp_path / "registry.log", JAVA, port_of(settings)) as registry:
        _payments(registry)
        run(spark, settings, paid)
        assert _rows(settings) == [("ann", 2, Decimal("30.75")), ("bob", 1, Decimal("12345678901234.56"))]
        read = delta_rows(Tables(settings.data).output("avro_payments_read"))
        assert sorted(tuple(row[name] for name in ("at", "day", "receipt", "city")) for row in read) == [
            (1_000, "2024-02-29", "AQI=", "Bern"),
            *((at, "2024-02-29", "AQI=", None) for at in (2_000, 3_000, 2 * MINUTE_MS)),
        ]
        found = letters(settings, payments)
        assert len(found) == 4
        [unlike] = [letter for letter in found if "declared as decimal(20, 2)" in letter]
        assert "schema 3" in unlike
        assert sum("the registry has no schema 4711" in letter for letter in found) == 1
        assert outcome(spark, settings, paid) == "match"

        table = DeltaTable.forPath(spark, Tables(settings.data).output("avro_paid"))
        table.update(F.col("customer") == "ann", {"amount": F.lit(Decimal("30.76"))})
        assert outcome(spark, settings, paid) == "violation"


WINDOW = {"window_start": 0, "window_end": MINUTE_MS}
PUBLISHED: dict[str, list[dict[str, Any]]] = {
    amounts.name: [
        {"customer": "ann", **WINDOW, "payments": 2, "amount": Decimal("30.75")},
        {"customer": "bob", **WINDOW, "payments": 1, "amount": Decimal("12345678901234.56")},
    ],
    copied.name: [
        {"customer": "ann", "amount": Decimal("10.50"), "note": None, "at": 1_000},
        {"customer": "ann", "amount": Decimal("20.25"), "note": "x", "at": 2_000},
        {"customer": "bob", "amount": Decimal("12345678901234.56"), "note": None, "at": 3_000},
        {"customer": "eve", "amount": Decimal("1.00"), "note": None, "at": 2 * MINUTE_MS},
    ],
}


@pytest.mark.usefixtures("sent")
@pytest.mark.parametrize("topology", [amounts, copied], ids=lambda topology: topology.name)
def test_what_a_sink_publishes_in_avro_is_judged_by_what_it_says(
    topology: Topology, tmp_path: Path, spark: SparkSession, settings: Settings, project: Project
) -> None:
    assert JAVA is not None
    with pytest.raises(RegistryUnreachable):
        run(spark, settings, topology)
    [written] = topology.written
    topic, expected = written.topic.name, PUBLISHED[topology.name]
    with running(project, tmp_path / "registry.log", JAVA, port_of(settings)) as registry:
        _payments(registry)
        # a process keeps schemas by their ids: each has the same one in each new registry
        if topology is copied:
            [sink] = amounts.written
            registry.register(f"{sink.topic.name}-value", json.loads(sink_schema(sink.topic.name, sink.fields)))
        run(spark, settings, topology)
        published = committed(Connection.of(settings), topic)
        said = [fields_of(message.value(), written.fields) for message in published]
        assert sorted(said, key=str) == sorted(expected, key=str)
        assert f"{topic}-value" in registry.subjects()
        assert outcome(spark, settings, topology) == "match"

        forged = {**dict.fromkeys(written.fields), **expected[0], "amount": Decimal("30.76")}
        message = published[0]
        headers = [(name, b"1" if name == REVISION_HEADER else told) for name, told in message.headers()]
        producer = Connection.of(settings).producer()
        producer.produce(
            topic,
            key=message.key(),
            value=avro_encoder(written)(forged),
            headers=headers,
            timestamp=message.timestamp()[1],
        )
        assert producer.flush(60) == 0
        assert outcome(spark, settings, topology) == "violation"


def test_a_real_registry_finds_a_schema_again_and_refuses_one_that_its_rule_forbids(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert JAVA is not None
    with running(project, tmp_path / "registry.log", JAVA, free_ports(1)[0]) as registry:
        monkeypatch.setenv(VARIABLE, registry.address)
        registry.require("FULL")
        fields = {"n": LONG, "amount": decimal(20, 2)}
        first = schema_id("results", sink_schema("results", fields))
        assert registry.register("results-value", json.loads(sink_schema("results", fields))) == first
        more = {"text": STRING, **fields}
        assert schema_id("results", sink_schema("results", more)) != first
        with pytest.raises(SchemaRefused, match="results-value"):
            schema_id("results", sink_schema("results", {**fields, "n": STRING}))
        assert schema_id("others", sink_schema("results", fields)) == first  # under a subject of its own


def _payments(registry: Registry) -> list[bytes]:
    """Three good ones, four bad ones, one that ends the minute; the schemas have the same ids in each new registry."""
    first, second, third = (
        registry.register(f"{number}-value", schema) for number, schema in enumerate((FIRST, COMPATIBLE, INCOMPATIBLE))
    )
    assert (first, second, third) == (1, 2, 3)
    ann = _value(first, FIRST, customer="ann", amount=Decimal("10.50"), at_ms=1_000, to={"city": "Bern"})
    return [
        ann,
        _value(second, COMPATIBLE, note="x", customer="ann", amount=Decimal("20.25"), at_ms=2_000, lines={"a": 1}),
        _value(first, FIRST, customer="bob", amount=Decimal("12345678901234.56"), at_ms=3_000),
        _value(third, INCOMPATIBLE, customer="ann", amount=5.0, at_ms=4_000),
        b"\0" + (4711).to_bytes(4, "big") + ann[5:],
        ann[:-1],
        b'{"customer": "ann"}',
        _value(first, FIRST, customer="eve", amount=Decimal("1.00"), at_ms=2 * MINUTE_MS),
    ]


def _rows(settings: Settings) -> list[tuple[str, int, Decimal]]:
    rows = delta_rows(Tables(settings.data).output("avro_paid"))
    return sorted((row["customer"], row["payments"], row["amount"]) for row in rows)
