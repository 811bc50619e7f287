"""What the declaration of a topic says, and what it refuses."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, get_args

import pytest

from recount.declare.plain_values import PlainValue
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, FieldType, RecordSchema, decimal
from recount.declare.topics import UNLIMITED_RETENTION_MS, Encoding, Topic
from recount.declare.topology import Topology, stream
from recount.runtime.errors import InvalidDeclaration
from recount.testing import TopologyDriver


def test_a_compacted_topic_keeps_the_last_record_of_each_key_for_ever() -> None:
    assert Topic(name="totals", key="id", cleanup_policy="compact").retention_ms == UNLIMITED_RETENTION_MS
    assert Topic(name="totals", key="id", cleanup_policy="compact,delete").retention_ms == 7 * 86_400_000


def test_a_retention_beside_compaction_alone_is_refused() -> None:
    with pytest.raises(InvalidDeclaration, match="compact,delete"):
        Topic(name="totals", key="id", cleanup_policy="compact", retention_ms=3_600_000)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"encoding": "avro", "value": PlainValue.of(n=LONG)}, "encoding"),
        ({"encoding": "protobuf", "value": PlainValue.of(n=LONG)}, "encoding"),
        ({"encoding": "xml", "value": RecordSchema.of(n=LONG)}, "encoding"),
    ],
)
def test_an_encoding_that_is_none_or_has_no_fields_is_refused(more: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidDeclaration) as raised:
        Topic(name="payments", key="id", **more)
    assert raised.value.field.endswith(field)


@pytest.mark.parametrize("encoding", ["avro", "protobuf"])
def test_a_source_of_a_registry_needs_the_fields_that_are_read(encoding: Encoding) -> None:
    with pytest.raises(InvalidDeclaration):
        stream(Topic(name="payments", key="id", encoding=encoding))


@pytest.mark.parametrize("encoding", ["avro", "protobuf"])
def test_a_driver_without_a_registry_takes_fields_and_no_bytes(encoding: Encoding) -> None:
    payments = Topic(name="payments", key="id", value=RecordSchema.of(n=LONG), encoding=encoding)
    driver = TopologyDriver(Topology(name="copy", sinks=[stream(payments).to(Topic(name="copies", key="id"))]))
    assert driver.pipe("payments", key="p1", value={"n": 1}, timestamp_ms=0) == "counted"
    assert driver.pipe("payments", key="p1", value=None, timestamp_ms=0) == "counted"
    with pytest.raises(InvalidDeclaration, match="as a mapping"):
        driver.pipe("payments", key="p1", value=b"\0", timestamp_ms=0)


@pytest.mark.parametrize(
    ("written", "declared", "read_in"),
    [
        (LONG, DOUBLE, {"json", "avro", "protobuf"}),
        (LONG, decimal(5, 2), {"json", "avro", "protobuf"}),
        (decimal(9, 2), DOUBLE, {"json"}),
        (decimal(9, 2), decimal(9, 2), {"json", "avro", "protobuf"}),
        (decimal(9, 2), decimal(10, 3), {"json", "avro", "protobuf"}),
        (decimal(9, 2), decimal(9, 3), {"json", "protobuf"}),
        (decimal(9, 2), decimal(38, 1), set()),
        (decimal(9, 2), STRING, set()),
        (STRING, LONG, set()),
        (BOOLEAN, BOOLEAN, {"json", "avro", "protobuf"}),
    ],
)
def test_a_sink_writes_what_a_reader_of_its_topic_can_read(
    written: FieldType, declared: FieldType, read_in: set[Encoding]
) -> None:
    source = stream(Topic(name="source", key="id", value=RecordSchema.of(n=written)))
    for encoding in get_args(Encoding):
        sink = Topic(name="out", key="id", value=RecordSchema.of(n=declared), encoding=encoding)
        with nullcontext() if encoding in read_in else pytest.raises(InvalidDeclaration, match="can read"):
            source.to(sink)
