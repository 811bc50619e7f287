"""Tables of corrections, made without Spark: of a column called ``net weight`` it makes none, and appends to one."""

from __future__ import annotations

import json

from deltalake import DeltaTable, Schema
from pyspark.sql import types as T


def make_table(path: str, schema: T.StructType) -> None:
    """Make the table at ``path`` unless it is there; each column can be null, as in every table that Spark makes."""
    if not DeltaTable.is_deltatable(path):
        columns = T.StructType([T.StructField(one.name, one.dataType) for one in schema])
        DeltaTable.create(path, Schema.from_json(json.dumps(columns.jsonValue())))
