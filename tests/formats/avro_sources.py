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
from tests.formats import avro_payments
from tests.formats.apicurio import Registry
from tests.formats.avro_payments import COMPATIBLE, FIRST, INCOMPATIBLE, amounts, copied, paid, payments
from tests.formats.registry_streams import (
    MINUTE_MS,
    PAID,
    PUBLISHED_AMOUNTS,
    PUBLISHED_COPIES,
    Streams,
    registry_of,
    streams_of,
)
from tests.integration.spark.drivers import delta_rows

from recount.codec.avro_sink_schemas import sink_schema
from recount.codec.registered_schemas import schema_id
from recount.core.registry_errors import VARIABLE, RegistryUnreachable, SchemaRefused
from recount.core.schema import LONG, STRING, decimal
from recount.core.topology import Topology
from recount.local.kafka import EmbeddedKafka
from recount.local.project import Project

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
    ("topology", "expected"),
    [(amounts, PUBLISHED_AMOUNTS), (copied, PUBLISHED_COPIES)],
    ids=["amounts", "copies"],
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
