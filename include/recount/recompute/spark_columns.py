"""Columns and types of Spark for the fields that topologies declare."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from recount.declare.schema import FieldType

_SCALARS: Mapping[str, T.DataType] = {
    "string": T.StringType(),
    "long": T.LongType(),
    "double": T.DoubleType(),
    "boolean": T.BooleanType(),
}


def spark_type(field_type: FieldType) -> T.DataType:
    """The Spark type that holds every value of ``field_type``."""
    if field_type.element is not None:
        # there are no nulls in it, but files do not say so, and Spark casts no array that may have some
        return T.ArrayType(spark_type(field_type.element), containsNull=True)
    if field_type.kind == "decimal":
        return T.DecimalType(field_type.precision, field_type.scale)
    return _SCALARS[field_type.kind]


def named(name: str) -> Column:
    """The column ``name``, whatever characters it has."""
    return F.col("`" + name.replace("`", "``") + "`")
