"""The fields of a topic that are headers of its records, as Arrow columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from recount.codec.decoder import Decoded, Fault, arrow_type
from recount.core.schema import BadRecord, RecordSchema

GivenHeaders = Sequence[Mapping[str, Any]] | None
"""Of a record as Spark hands them over: each with ``key`` and ``value``."""


class HeaderColumns:
    """Reads the headers of one topic; ``columns`` limits what is returned, never what is checked."""

    def __init__(self, declared: RecordSchema, columns: Sequence[str]) -> None:
        self._declared = declared
        self._columns = [name for name in columns if name in declared.header_fields]

    def decode(self, headers: Sequence[GivenHeaders], values: Sequence[bytes | None]) -> Decoded:
        """Those of all records; one with a null value is a tombstone, whose fields are all null."""
        nothing = dict.fromkeys(self._declared.header_fields)
        rows, faults = [], []
        for index, (given, value) in enumerate(zip(headers, values, strict=True)):
            row: dict[str, Any] = nothing
            try:
                if value is not None:
                    row = self._declared.of_headers((one["key"], one["value"]) for one in given or ())
            except BadRecord as bad:
                faults.append(Fault(index, bad.reason, bad.detail))
            rows.append(row)
        kinds = {name: arrow_type(self._declared.fields[name]) for name in self._columns}
        columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
        return Decoded(columns=columns, faults=faults)
