"""A stream of Protobuf values by a real schema registry, and its audit: green, and red once a row is altered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.formats import protobuf_payments
from tests.formats.protobuf_payments import COMPATIBLE, FIRST, INCOMPATIBLE, READ, amounts, copied, paid, payments
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
from tests.unit.formats.protobuf_writers import by_both, fill, sink_file, wire

from recount.declare.schema import LONG, STRING, RecordSchema, decimal, nested
from recount.declare.topology import Topology
from recount.formats.protobuf_schemas import writer_message
from recount.formats.schema_registry import latest_files, protobuf_files, schema_id
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.recompute.registry_parsing import fetched_files
from recount.runtime.errors import VARIABLE, SchemaRefused
from recount.runtime.protobuf_files import Files

_SECOND_MESSAGE = b"\2\2"

pytestmark = pytest.mark.timeout(600)  # with the archive of the registry to be fetched


@pytest.fixture(scope="module", name="streams")
def _streams(tmp_path_factory: pytest.TempPathFactory, kafka: EmbeddedKafka, project: Project) -> Iterator[Streams]:
    """With all payments in their topic."""
    with streams_of(protobuf_payments, tmp_path_factory, kafka, project) as streams:
        with streams.registry() as registry:
            streams.send(payments, _payments(registry))
        yield streams


def _value(registry: Registry, schema_id: int, at_ms: int, row: dict[str, Any]) -> bytes:
    """Of a payment 999 microseconds after ``at_ms``."""
    at = {"seconds": at_ms // 1_000, "nanos": at_ms % 1_000 * 1_000_000 + 999_000}
    message: Any = writer_message(_files(registry, schema_id), (1,))()
    fill(message, {"at": at, "day": "2024-02-29", "receipt": b"\x01\x02", "pieces": [1, -2], **row})
    return wire(schema_id, message, _SECOND_MESSAGE)


def _files(registry: Registry, schema_id: int) -> Files:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, registry.address)
        return protobuf_files(schema_id)


def test_a_file_of_a_real_registry_is_read_with_those_that_it_refers_to(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = 'syntax = "proto3"; package shared; message Money { string currency = 1; }'
    text = 'syntax = "proto3"; import "shared/money.proto"; message M { int32 n = 1; shared.Money price = 2; }'
    with registry_of(project, tmp_path) as registry:
        monkeypatch.setenv(VARIABLE, registry.address)
        registry.register("money-value", shared)
        number = registry.register("referring-value", text, {"shared/money.proto": "money-value"})
        files = protobuf_files(number)
        assert fetched_files(number) == files
    asked = RecordSchema.of(n=LONG, currency=nested("price", "currency", kind=STRING))
    told = by_both([wire(number, b"\x08\x05\x12\x05\x0a\x03EUR")], asked, lambda _: files)
    assert told == [{"n": 5, "currency": "EUR"}]


def test_a_stream_of_protobuf_is_audited_green_and_red_once_a_row_is_altered(streams: Streams) -> None:
    streams.require_wait(paid, payments)
    with streams.registry() as registry:
        _payments(registry)
        streams.run(paid)
        assert streams.paid("protobuf_paid") == PAID
        read = delta_rows(streams.path("protobuf_payments_read"))
        found = sorted(tuple(str(row[name]) for name in READ) for row in read)
        rest = ("2024-02-29", "AQI=", "OPEN", "[1, -2]")
        assert found == [
            ("1000", "2024-02-29", "AQI=", "PAID", "[1, -2]", "None", "Bern", "None"),
            (str(2 * MINUTE_MS), *rest, "None", "None", "None"),
            ("2000", *rest, "x", "None", "7"),
            ("3000", *rest, "None", "None", "None"),
        ]
        letters = streams.letters(payments)
        assert len(letters) == 5
        [unlike] = [letter for letter in letters if "amount: decimal(20, 2)" in letter and "is double" in letter]
        assert "schema 3" in unlike
        assert sum("the registry has no schema 4711" in letter for letter in letters) == 1
        streams.require_red(paid, "protobuf_paid")


@pytest.mark.parametrize(
    ("topology", "expected"), [(amounts, PUBLISHED_AMOUNTS), (copied, PUBLISHED_COPIES)], ids=["amounts", "copies"]
)
def test_what_a_sink_publishes_in_protobuf_is_judged_by_what_it_says(
    topology: Topology, expected: list[dict[str, Any]], streams: Streams
) -> None:
    with streams.registry() as registry:
        _payments(registry)
        # a process keeps schemas by their ids: each has the same one in each new registry
        for earlier in (amounts, copied) if topology is copied else (amounts,):
            [sink] = earlier.written
            registry.register(f"{sink.topic.name}-value", sink_file(sink.topic.name, sink.fields, None))
        streams.require_published(topology, expected)


def test_a_real_registry_takes_a_file_that_is_added_to_and_keeps_its_numbers(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry_of(project, tmp_path) as registry:
        monkeypatch.setenv(VARIABLE, registry.address)
        registry.require("BACKWARD")
        assert latest_files("results") is None
        first = sink_file("results", {"n": LONG, "amount": decimal(20, 2)}, None)
        number = schema_id("results", first, "PROTOBUF")
        assert schema_id("results", first, "PROTOBUF") == number
        more = sink_file("results", {"text": STRING, "n": LONG}, _newest("results"))
        assert "optional string text = 3;" in more
        assert schema_id("results", more, "PROTOBUF") != number
        grown = _newest("results")
        assert sink_file("results", {"n": LONG, "amount": decimal(20, 2)}, grown) == grown
        with pytest.raises(SchemaRefused):
            sink_file("results", {"n": STRING}, grown)
        with pytest.raises(SchemaRefused, match="results-value"):
            schema_id("results", grown.replace("int64 n", "string n"), "PROTOBUF")
        registry.require("FULL")  # of this registry it forbids every field that its older file has not
        with pytest.raises(SchemaRefused, match="results-value"):
            schema_id("results", sink_file("results", {"last": LONG}, grown), "PROTOBUF")


def _newest(topic: str) -> str:
    files = latest_files(topic)
    assert files is not None
    return files[-1][1]


def _payments(registry: Registry) -> list[bytes]:
    """Three good ones, five bad ones, one that ends the minute; the schemas have the same ids in each new registry."""
    first, second, third = (
        registry.register(f"{number}-value", schema) for number, schema in enumerate((FIRST, COMPATIBLE, INCOMPATIBLE))
    )
    assert (first, second, third) == (1, 2, 3)
    ann = _value(registry, first, 1_000, {"customer": "ann", "amount": "10.50", "state": 1, "to": {"city": "Bern"}})
    return [
        ann,
        _value(
            registry, second, 2_000, {"note": "x", "customer": "ann", "amount": "20.25", "points": {"bonus": 7, "a": 1}}
        ),
        _value(registry, first, 3_000, {"customer": "bob", "amount": "12345678901234.56"}),
        _value(registry, third, 4_000, {"customer": "ann", "amount": 5.0}),
        b"\0" + (4711).to_bytes(4, "big") + ann[5:],
        ann[:-1],
        b'{"customer": "ann"}',
        _value(registry, first, 5_000, {"customer": "ann", "amount": ""}),
        _value(registry, first, 2 * MINUTE_MS, {"customer": "eve", "amount": "1.00"}),
    ]
