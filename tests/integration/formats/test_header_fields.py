"""Fields that are headers on a real broker: what streams write of them, and audits from Kafka and from the archive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from delta.tables import DeltaTable
from pyspark.sql import functions as F
from tests.formats.registry_streams import MINUTE_MS, Streams, streams_of
from tests.integration.engine.drivers import committed, delta_rows
from tests.integration.formats import header_calls
from tests.integration.formats.header_calls import calls, copied, kept, per_tenant

from recount.engine.upkeep.archive_stream import ArchiveWork
from recount.kafka.connection import Connection
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.tables.places import Tables


@pytest.fixture(scope="module", name="streams")
def _streams(tmp_path_factory: pytest.TempPathFactory, kafka: EmbeddedKafka, project: Project) -> Iterator[Streams]:
    with streams_of(header_calls, tmp_path_factory, kafka, project) as streams:
        yield streams


def _send(streams: Streams, value: bytes, *headers: tuple[str, bytes | None]) -> None:
    producer = Connection.of(streams.settings).producer()
    producer.produce(calls.name, key=b"c", value=value, headers=list(headers))
    assert producer.flush(60) == 0


@pytest.mark.thorough
def test_headers_are_read_by_streams_and_audits(streams: Streams) -> None:
    blue, first = ("tenant", b"blue"), ("sent-at", b"1970-01-01T00:00:01Z")
    _send(streams, b'{"ms":40}', blue, first, ("trace", b"\x01\xff"))
    _send(streams, b'{"ms":2,"tenant":"of the value"}', ("tenant", b"red"), blue, first)
    _send(streams, b'{"ms":5}', ("tenant", b"red"), first, ("other", None))
    _send(streams, b'{"ms":5}')
    _send(streams, b'{"ms":5}', blue)
    _send(streams, b'{"ms":5}', ("tenant", b"\xff"), first)
    _send(streams, b'{"ms":1}', ("tenant", b"eve"), ("sent-at", b"1970-01-01T00:02:00Z"))

    for stream in (ArchiveWork(streams.spark, kept, streams.settings.data), per_tenant, copied):
        streams.run(stream)
    assert len(streams.letters(calls)) == 2 * 3
    archived = delta_rows(Tables(streams.settings.data).archive(calls.name))
    assert sorted(archived, key=lambda row: row["offset"]) == [
        {
            "partition": record.partition(),
            "offset": record.offset(),
            "timestamp_ms": record.timestamp()[1],
            "key": record.key(),
            "value": record.value(),
            "headers": [{"key": name, "value": value} for name, value in record.headers() or ()],
        }
        for record in committed(Connection.of(streams.settings), calls.name)
    ]
    rows = delta_rows(streams.path("header_tenants"))
    assert sorted((row["tenant"], row["calls"], row["ms"]) for row in rows) == [("blue", 2, 42), ("red", 1, 5)]
    copies = delta_rows(streams.path("header_copies"))
    assert sorted((row["tenant"], row["sent"], row["trace"] or "") for row in copies) == [
        ("blue", 1_000, ""),
        ("blue", 1_000, "Af8="),
        ("eve", 2 * MINUTE_MS, ""),
        ("red", 1_000, ""),
    ]

    for topology in (per_tenant, copied):
        assert streams.outcome(topology) == "match"
        assert streams.outcome(topology, source="archive", from_the_beginning=True) == "match"

    table = DeltaTable.forPath(streams.spark, streams.path("header_copies"))
    table.update(F.col("trace") == "Af8=", {"trace": F.lit("Af4=")})
    assert streams.outcome(copied) == "violation"
