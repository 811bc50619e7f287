"""Headers of records to Arrow columns: the meaning of ``rules.header_values``, for many records at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from recount.core.nodes import Source
from recount.core.schema import RecordSchema
from recount.recompute.columns import spark_type
from recount.recompute.parsing import Parsed
from recount.recompute.rules.header_values import fields_of, headers_named
from recount.recompute.rules.json_values import Bad


def is_with_headers(source: Source) -> bool:
    """Whether fields of ``source`` are headers of its records."""
    declared = source.topic.value
    return isinstance(declared, RecordSchema) and bool(headers_named(declared))


class HeaderParser:
    """Reads the headers of one topic; ``wanted`` limits what is returned, never what is checked."""

    def __init__(self, schema: RecordSchema, wanted: Sequence[str]) -> None:
        self._schema = schema
        self._wanted = [name for name in headers_named(schema) if name in wanted]

    def added(self, parsed: Parsed, records: pa.RecordBatch) -> Parsed:
        """``parsed``, the values of ``records``, with their headers; what is wrong with a value counts first."""
        cells: dict[str, list[Any]] = {name: [None] * records.num_rows for name in self._wanted}
        bad = dict(parsed.bad)
        is_null = records.column("value").is_null().to_pylist()
        for index, headers in enumerate(records.column("headers").to_pylist()):
            if is_null[index]:
                continue
            try:
                found = fields_of(headers or (), self._schema)
            except Bad as fault:
                bad.setdefault(index, (fault.reason, fault.detail))
                continue
            for name, column in cells.items():
                column[index] = found[name]
        kinds = {name: to_arrow_type(spark_type(self._schema.fields[name])) for name in self._wanted}
        more = {name: pa.array(column, kinds[name]) for name, column in cells.items()}
        return Parsed({**parsed.columns, **more}, bad)
