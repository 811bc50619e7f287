"""Places of published rows, the order of batches, and values of sinks whose schema a registry has.

Avro and Protobuf values are read by the recompute's own reader, not by what wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import polars as pl
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from recount.audit.cut.audited_ledger import Order
from recount.declare.columns import BATCH, GENERATION
from recount.declare.operators.nodes import KEY
from recount.declare.schema import FieldType, RecordSchema
from recount.declare.topology import Written
from recount.recompute.registry_parsing import AvroParser, ProtobufParser
from recount.recompute.rules.value_rules import Bad
from recount.recompute.spark_columns import spark_type

KAFKA, DELTA, LATER = "kafka", "delta", "later"
BY_BACKFILL = "backfill"
NO_REVISION = -1


def written_after(order: Order) -> pl.Expr:
    """Whether a row was written by a batch after ``order``."""
    generation, batch = order
    same = (pl.col(GENERATION) == generation) & (pl.col(BATCH) > batch)
    return (pl.col(GENERATION) > generation) | same


def is_after(order: Order) -> Column:
    """The same for Spark."""
    generation, batch = order
    same = (F.col(GENERATION) == generation) & (F.col(BATCH) > batch)
    return (F.col(GENERATION) > generation) | same


def is_of_registry(written: Written) -> bool:
    """Whether values of the sink are read here."""
    return written.topic.encoding != "json"


def decoded(value: Column, written: Written) -> Column:
    """``fields_of`` the bytes ``value`` as a struct of all fields."""
    encoding, fields = written.topic.encoding, dict(written.fields)
    schema = T.StructType([T.StructField(name, spark_type(kind)) for name, kind in fields.items()])

    return F.udf(lambda one: _row(one, encoding, fields), schema)(value)


def _row(value: bytearray | None, encoding: str, fields: Mapping[str, FieldType]) -> tuple[Any, ...] | None:
    said = None if value is None else fields_of(bytes(value), encoding, fields)
    return None if said is None else tuple(said.get(name) for name in fields)


def fields_of(value: bytes, encoding: str, fields: Mapping[str, FieldType]) -> dict[str, Any] | None:
    """The ``fields`` of ``value`` but for the record key, null where its schema has none; None for no such value.

    Raises ``RegistryUnreachable`` and ``RegistryRefused``, for then nothing can be said of a value.
    """
    try:
        return _parser(encoding, tuple((name, kind) for name, kind in fields.items() if name != KEY)).fields_of(value)
    except Bad:
        return None


@lru_cache(maxsize=64)
def _parser(encoding: str, fields: tuple[tuple[str, FieldType], ...]) -> AvroParser | ProtobufParser:
    schema = RecordSchema(fields=dict(fields))
    return AvroParser(schema, [], of_sink=True) if encoding == "avro" else ProtobufParser(schema, [], of_sink=True)
