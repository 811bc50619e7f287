"""Streams of Avro values by a real schema registry, and their audits: green, and red once something is altered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from delta.tables import DeltaTable
from pyspark.sql import functions as F
from tests.formats import avro_payments
from tests.formats.avro_payments import (
    COMPATIBLE,
    FIRST,
    INCOMPATIBLE,
    KEY_SCHEMA,
    amounts,
    copied,
    keyed,
    keyed_copies,
    paid,
    payments,
    per_key,
)
from tests.formats.registry_streams import (
    MINUTE_MS,
    PAID,
    PUBLISHED_AMOUNTS,
    PUBLISHED_COPIES,
    Registry,
    Streams,
    registry_of,
    streams_of,
)
from tests.integration.engine.drivers import delta_rows

from recount.declare.operators.nodes import KEY
from recount.declare.schema import LONG, STRING, decimal
from recount.declare.topology import Topology
from recount.formats.registry_encoders import sink_schema
from recount.formats.schema_registry import schema_id
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.runtime.errors import VARIABLE, RegistryUnreachable, SchemaRefused

_OF_KEY = 4

pytestmark = pytest.mark.timeout(600)  # with the archive of the registry to be fetched


@pytest.fixture(scope="module", name="streams")
def _streams(tmp_path_factory: pytest.TempPathFactory, kafka: EmbeddedKafka, project: Project) -> Iterator[Streams]:
    """With all payments in their topic."""
    with streams_of(avro_payments, tmp_path_factory, kafka, project) as streams:
        with streams.registry() as registry:
            streams.send(payments, _payments(registry))
        yield streams


def _value(schema_id: int, schema: Any, *, at_ms: int, **row: Any) -> bytes:
    """Of a payment 999 microseconds after ``at_ms``."""
    written = BytesIO()
    row |= {"at": 1_000 * at_ms + 999, "day": date(2024, 2, 29), "receipt": b"\x01\x02"}
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), row)
    return b"\0" + schema_id.to_bytes(4, "big") + written.getvalue()


def test_a_stream_of_avro_is_audited_green_and_red_once_a_row_is_altered(streams: Streams) -> None:
    streams.require_wait(paid, payments)
    with streams.registry() as registry:
        _payments(registry)
        streams.run(paid)
        assert streams.paid("avro_paid") == PAID
        read = delta_rows(streams.path("avro_payments_read"))
        assert sorted(tuple(row[name] for name in ("at", "day", "receipt", "city")) for row in read) == [
            (1_000, "2024-02-29", "AQI=", "Bern"),
            *((at, "2024-02-29", "AQI=", None) for at in (2_000, 3_000, 2 * MINUTE_MS)),
        ]
        letters = streams.letters(payments)
        assert len(letters) == 4
        [unlike] = [letter for letter in letters if "declared as decimal(20, 2)" in letter]
        assert "schema 3" in unlike
        assert sum("the registry has no schema 4711" in letter for letter in letters) == 1
        streams.require_red(paid, "avro_paid")


@pytest.mark.parametrize(
    ("topology", "expected"), [(amounts, PUBLISHED_AMOUNTS), (copied, PUBLISHED_COPIES)], ids=["amounts", "copies"]
)
def test_what_a_sink_publishes_in_avro_is_judged_by_what_it_says(
    topology: Topology, expected: list[dict[str, Any]], streams: Streams
) -> None:
    with pytest.raises(RegistryUnreachable):
        streams.run(topology)
    with streams.registry() as registry:
        _payments(registry)
        # a process keeps schemas by their ids: each has the same one in each new registry
        if topology is copied:
            [sink] = amounts.written
            registry.register(f"{sink.topic.name}-value", json.loads(sink_schema(sink.topic.name, sink.fields)))
        streams.require_published(topology, expected)
        assert f"{topology.written[0].topic.name}-value" in registry.subjects()


def test_records_are_grouped_by_what_their_keys_in_avro_say(streams: Streams) -> None:
    pair, spaced = (b"\0" + _OF_KEY.to_bytes(4, "big") + rest for rest in (b"\x0e\x02\x04EU", b"\x8e\x00\x02\x04EU"))
    keys = [pair, spaced, pair[:-1], b"p3", b"\0" + _OF_KEY.to_bytes(4, "big") + b"\x10\x00"]
    values = [json.dumps({"n": 1, "at": at_ms}).encode() for at_ms in (1_000, 2_000, 3_000, 4_000, 2 * MINUTE_MS)]
    streams.send(keyed, values, keys)
    streams.require_wait(per_key, keyed)
    with streams.registry() as registry:
        _payments(registry)
        for topology in (per_key, keyed_copies):
            streams.run(topology)
            assert streams.outcome(topology) == "match"
        assert len(streams.letters(keyed)) == 2 * 2
        assert [(row[KEY], row["n"]) for row in delta_rows(streams.path("avro_per_key"))] == [
            ('{"customer":7,"region":"EU"}', 2)
        ]
        copies = delta_rows(streams.path("avro_keyed_copies"))
        told = sorted((row[KEY], row["customer"], row["region"] or "") for row in copies)
        assert told == [*[('{"customer":7,"region":"EU"}', 7, "EU")] * 2, ('{"customer":8,"region":null}', 8, "")]
        rows = DeltaTable.forPath(streams.spark, streams.path("avro_keyed_copies"))
        rows.update(F.col("customer") == 8, {"customer": F.lit(9)})
        assert streams.outcome(keyed_copies) == "violation"


def test_a_real_registry_finds_a_schema_again_and_refuses_one_that_its_rule_forbids(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry_of(project, tmp_path) as registry:
        monkeypatch.setenv(VARIABLE, registry.address)
        registry.require("FULL")
        fields = {"n": LONG, "amount": decimal(20, 2)}
        first = schema_id("results", sink_schema("results", fields), "AVRO")
        assert registry.register("results-value", json.loads(sink_schema("results", fields))) == first
        more = {"text": STRING, **fields}
        assert schema_id("results", sink_schema("results", more), "AVRO") != first
        with pytest.raises(SchemaRefused, match="results-value"):
            schema_id("results", sink_schema("results", {**fields, "n": STRING}), "AVRO")
        assert schema_id("others", sink_schema("results", fields), "AVRO") == first  # under a subject of its own


def _payments(registry: Registry) -> list[bytes]:
    """Three good ones, four bad ones, one that ends the minute; the schemas have the same ids in each new registry."""
    given = FIRST, COMPATIBLE, INCOMPATIBLE, KEY_SCHEMA
    first, second, third, of_key = (registry.register(f"{number}-value", schema) for number, schema in enumerate(given))
    assert (first, second, third, of_key) == (1, 2, 3, _OF_KEY)
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
