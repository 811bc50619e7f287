"""Plain values to Arrow columns, with the meaning of ``PlainValue.decode``: texts by Arrow, all else as JSON."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from recount.codec.decoder import Decoded, Fault, ValueDecoder
from recount.core.plain_values import PlainValue
from recount.core.schema import BadRecord, RecordSchema


class PlainDecoder:
    """Decodes the values of one topic; ``columns`` limits what is returned, never what is checked."""

    def __init__(self, declared: PlainValue, columns: Sequence[str] | None = None) -> None:
        self._declared = declared
        self._is_wanted = columns is None or declared.name in columns
        self._json = ValueDecoder(RecordSchema(fields=declared.fields), columns)

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """All ``values`` as columns. A null value is a tombstone: null and no fault."""
        return self._texts(values) if self._declared.kind.kind == "string" else self._others(values)

    def _texts(self, values: Sequence[bytes | None]) -> Decoded:
        try:
            found, faults = pa.array(values, pa.binary()).cast(pa.string()), []
        except pa.ArrowInvalid:
            faults = [fault for fault in map(self._fault, range(len(values)), values) if fault]
            bad = {fault.index for fault in faults}
            good = [None if index in bad else value for index, value in enumerate(values)]
            found = pa.array(good, pa.binary()).cast(pa.string())
        return Decoded(columns={self._declared.name: found} if self._is_wanted else {}, faults=faults)

    def _others(self, values: Sequence[bytes | None]) -> Decoded:
        documents = [None if value is None else self._declared.as_json(value) for value in values]
        decoded = self._json.decode(documents)
        no_json = [index for index, value in enumerate(values) if value is not None and documents[index] is None]
        faults = [*decoded.faults, *filter(None, (self._fault(index, values[index]) for index in no_json))]
        return Decoded(columns=decoded.columns, faults=sorted(faults, key=lambda fault: fault.index))

    def _fault(self, index: int, value: bytes | None) -> Fault | None:
        """What the reference says against ``value``."""
        try:
            if value is not None:
                self._declared.decode(value)
        except BadRecord as bad:
            return Fault(index, bad.reason, bad.detail)
        return None
