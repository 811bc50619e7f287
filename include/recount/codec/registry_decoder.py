"""Values of a schema registry to Arrow columns: a zero byte, the id of the writer's schema, and what that says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from recount.codec.decoder import Decoded, Fault, arrow_type
from recount.core.schema import BadRecord, RecordSchema

_MAGIC, HEAD = 0, 5
"""``HEAD`` bytes are before the value."""


class RegistryDecoder(ABC):
    """Decodes the values of one topic; ``columns`` limits what is returned, never what is checked."""

    def __init__(self, declared: RecordSchema, columns: Sequence[str] | None = None) -> None:
        self._declared = declared
        self._columns = list(declared.fields if columns is None else columns)

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """All ``values`` as columns. A null value is a tombstone: nulls and no fault."""
        nothing = dict.fromkeys(self._declared.fields)
        rows, faults = [], []
        for index, value in enumerate(values):
            row: dict[str, Any] = nothing
            try:
                row = nothing if value is None else self._row(value)
            except BadRecord as bad:
                faults.append(Fault(index, bad.reason, bad.detail))
            rows.append(row)
        kinds = {name: arrow_type(self._declared.fields[name]) for name in self._columns}
        columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
        return Decoded(columns=columns, faults=faults)

    def _row(self, value: bytes) -> dict[str, Any]:
        if len(value) < HEAD or value[0] != _MAGIC:
            raise BadRecord("undecodable", f"no id of a schema, which begins with a zero byte: {value[:HEAD]!r}")
        return self._fields_of(int.from_bytes(value[1:HEAD], "big"), value)

    @abstractmethod
    def _fields_of(self, schema_id: int, value: bytes) -> dict[str, Any]:
        """The declared fields of ``value``, of which ``HEAD`` bytes have been read; raises ``BadRecord``."""

    def _unlike(self, schema_id: int, error: Exception) -> BadRecord:
        """For all values of a schema that is none, or not like what is declared."""
        return self._unreadable(f"schema {schema_id} cannot be read as what is declared: {error}")

    def _unreadable(self, why: str) -> BadRecord:
        """For all values of a schema, because of ``why``."""
        told = ", ".join(f"{name}: {self._declared.told(name)}" for name in self._declared.fields)
        return BadRecord("schema", f"{why}; declared is {told}")
