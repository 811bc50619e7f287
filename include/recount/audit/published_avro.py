"""What an Avro value of a sink's topic says, read by the recompute's own reader: not by the one that wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from recount.core.nodes import KEY
from recount.core.schema import FieldType, RecordSchema
from recount.recompute.avro_parsing import AvroParser
from recount.recompute.columns import spark_type
from recount.recompute.rules.json_values import Bad


def fields_of(value: bytes | None, fields: Mapping[str, FieldType]) -> dict[str, Any] | None:
    """The ``fields`` of ``value`` but for the record key, null where its schema has none; None for no such value.

    Raises ``RegistryUnreachable`` and ``RegistryRefused``, for then nothing can be said of a value.
    """
    if value is None:
        return None
    try:
        return _parser(tuple((name, kind) for name, kind in fields.items() if name != KEY)).fields_of(value)
    except Bad:
        return None


def decoded(value: Column, fields: Mapping[str, FieldType]) -> Column:
    """``fields_of`` the bytes ``value`` as a struct of ``fields``."""
    schema = T.StructType([T.StructField(name, spark_type(kind)) for name, kind in fields.items()])

    return F.udf(lambda one: _row(one, fields), schema)(value)


def _row(value: bytearray | None, fields: Mapping[str, FieldType]) -> tuple[Any, ...] | None:
    said = None if value is None else fields_of(bytes(value), fields)
    return None if said is None else tuple(said.get(name) for name in fields)


@lru_cache(maxsize=64)
def _parser(fields: tuple[tuple[str, FieldType], ...]) -> AvroParser:
    return AvroParser(RecordSchema(fields=dict(fields)), [], of_sink=True)
