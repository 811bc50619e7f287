"""Fields that are headers on a real broker: what streams write of them, and audits from Kafka and from the archive."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.formats.registry_streams import letters, outcome, run, settings_for
from tests.integration.formats import header_calls
from tests.integration.formats.header_calls import calls, copied, kept, per_tenant
from tests.integration.spark.drivers import delta_rows
from tests.local_spark import TINY, local_session

from recount.audit.nightly import audited
from recount.core.registry import declared
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.kafka.connection import Connection
from recount.kafka.declared import all_topics
from recount.kafka.topics import apply, plan
from recount.local.kafka import EmbeddedKafka
from recount.local.project import Project
from recount.spark.archive import ArchiveWork
from recount.spark.runner import RunOptions, StreamRunner

MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, kafka: EmbeddedKafka, project: Project) -> Settings:
    return settings_for(header_calls, tmp_path_factory.mktemp("headers"), kafka, project)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Iterator[SparkSession]:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = local_session(str(project.spark_jars), tmp_path_factory.mktemp("spark"), **TINY)
    yield session
    session.stop()


def _send(settings: Settings, value: bytes, *headers: tuple[str, bytes | None]) -> None:
    producer = Connection.of(settings).producer()
    producer.produce(calls.name, key=b"c", value=value, headers=list(headers))
    assert producer.flush(60) == 0


def test_headers_are_read_by_streams_and_audits(spark: SparkSession, settings: Settings) -> None:
    connection = Connection.of(settings)
    topics = all_topics(declared(settings.topologies), connection.own)
    apply(connection.admin(), plan(connection.admin(), topics, "embedded"))
    blue, first = ("tenant", b"blue"), ("sent-at", b"1970-01-01T00:00:01Z")
    _send(settings, b'{"ms":40}', blue, first, ("trace", b"\x01\xff"))
    _send(settings, b'{"ms":2,"tenant":"of the value"}', ("tenant", b"red"), blue, first)
    _send(settings, b'{"ms":5}', ("tenant", b"red"), first, ("other", None))
    _send(settings, b'{"ms":5}')
    _send(settings, b'{"ms":5}', blue)
    _send(settings, b'{"ms":5}', ("tenant", b"\xff"), first)
    _send(settings, b'{"ms":1}', ("tenant", b"eve"), ("sent-at", b"1970-01-01T00:02:00Z"))

    work = ArchiveWork(spark, kept, settings.data)
    StreamRunner(spark, settings, work, RunOptions(available_now=True)).run()
    for topology in (per_tenant, copied):
        run(spark, settings, topology)
    assert len(letters(settings, calls)) == 2 * 3
    rows = delta_rows(Tables(settings.data).output("header_tenants"))
    assert sorted((row["tenant"], row["calls"], row["ms"]) for row in rows) == [("blue", 2, 42), ("red", 1, 5)]
    copies = delta_rows(Tables(settings.data).output("header_copies"))
    assert sorted((row["tenant"], row["sent"], row["trace"] or "") for row in copies) == [
        ("blue", 1_000, ""),
        ("blue", 1_000, "Af8="),
        ("eve", 2 * MINUTE_MS, ""),
        ("red", 1_000, ""),
    ]

    for topology in (per_tenant, copied):
        assert outcome(spark, settings, topology) == "match"
        from_archive = audited(spark, settings, topology, source="archive", from_the_beginning=True)
        assert json.loads(from_archive.certificate.read_text())["outcome"] == "match"

    table = DeltaTable.forPath(spark, Tables(settings.data).output("header_copies"))
    table.update(F.col("trace") == "Af8=", {"trace": F.lit("Af4=")})
    assert outcome(spark, settings, copied) == "violation"
