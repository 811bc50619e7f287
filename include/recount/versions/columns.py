"""Further columns of a table that a stream at work has written."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from deltalake import DeltaTable, Schema

from recount.codec.decoder import arrow_type
from recount.core.schema import FieldType
from recount.core.tables import Tables


def add_columns(tables: Tables, further: Mapping[str, Mapping[str, FieldType]]) -> None:
    """Give every output table its ``further`` columns, null in the rows that there are; those it has are left alone."""
    for name, columns in further.items():
        table = DeltaTable(tables.output(name))
        known = {field.name for field in table.schema().fields}
        new = pa.schema([(name, arrow_type(kind)) for name, kind in columns.items() if name not in known])
        if len(new):
            table.alter.add_columns(list(Schema.from_arrow(new).fields))
