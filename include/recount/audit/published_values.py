"""What an Avro or Protobuf value of a sink says, read by the recompute's own reader: not by what wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from recount.core.nodes import KEY
from recount.core.schema import FieldType, RecordSchema
from recount.core.topology import Written
from recount.recompute.columns import spark_type
from recount.recompute.registry_parsing import AvroParser, ProtobufParser
from recount.recompute.rules.json_values import Bad


def is_of_registry(written: Written) -> bool:
    """Whether values of the sink are read here."""
    return written.topic.encoding != "json"


def fields_of(value: bytes | None, written: Written) -> dict[str, Any] | None:
    """The fields of ``value`` but for the record key, null where its schema has none; None for no such value.

    Raises ``RegistryUnreachable`` and ``RegistryRefused``, for then nothing can be said of a value.
    """
    return _fields_of(value, written.topic.encoding, written.fields)


def decoded(value: Column, written: Written) -> Column:
    """``fields_of`` the bytes ``value`` as a struct of all fields."""
    encoding, fields = written.topic.encoding, dict(written.fields)
    schema = T.StructType([T.StructField(name, spark_type(kind)) for name, kind in fields.items()])

    return F.udf(lambda one: _row(one, encoding, fields), schema)(value)


def _row(value: bytearray | None, encoding: str, fields: Mapping[str, FieldType]) -> tuple[Any, ...] | None:
    said = None if value is None else _fields_of(bytes(value), encoding, fields)
    return None if said is None else tuple(said.get(name) for name in fields)


def _fields_of(value: bytes | None, encoding: str, fields: Mapping[str, FieldType]) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        return _parser(encoding, tuple((name, kind) for name, kind in fields.items() if name != KEY)).fields_of(value)
    except Bad:
        return None


@lru_cache(maxsize=64)
def _parser(encoding: str, fields: tuple[tuple[str, FieldType], ...]) -> AvroParser | ProtobufParser:
    schema = RecordSchema(fields=dict(fields))
    return AvroParser(schema, [], of_sink=True) if encoding == "avro" else ProtobufParser(schema, [], of_sink=True)
