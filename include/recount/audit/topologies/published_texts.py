"""The plain values of a sink's topic, read back in Spark as what they say; null where the stream writes none such."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from recount.core.plain_values import PlainValue
from recount.core.schema import FieldType
from recount.recompute.columns import spark_type

_WHOLE = "-?(0|[1-9][0-9]*)"
_NUMBER = rf"{_WHOLE}(\.[0-9]+)?([eE][+-]?[0-9]+)?"


def published(value: Column, declared: PlainValue) -> Column:
    """The bytes ``value`` as the type of ``declared`` holds them."""
    kind = declared.kind
    text = F.try_validate_utf8(value.cast("string"))
    if kind.kind == "string":
        return text
    # a cast alone would trim, round and take words such as Infinity
    return F.when(text.rlike(rf"\A({_written(kind)})\z"), text.try_cast(spark_type(kind)))


def _written(kind: FieldType) -> str:
    """How the stream writes values of ``kind``, as a pattern of Java."""
    match kind.kind:
        case "boolean":
            return "true|false"
        case "double":
            return _NUMBER
        case "decimal" if kind.scale:
            return rf"{_WHOLE}\.[0-9]{{{kind.scale}}}"
    return _WHOLE
