"""Decodes the records of one topic: their values, and the headers that are declared as fields."""

from __future__ import annotations

from collections.abc import Sequence

from recount.codec.decoder import Decoded
from recount.codec.header_columns import GivenHeaders, HeaderColumns
from recount.codec.value_decoders import decoder_of
from recount.core.schema import RecordSchema
from recount.core.topics import Topic


class RecordDecoder:
    """``columns`` are the fields that are returned, never what is checked."""

    def __init__(self, topic: Topic, columns: Sequence[str]) -> None:
        self._values = decoder_of(topic, columns)
        declared = topic.value if reads_headers(topic) else None
        self._headers = HeaderColumns(declared, columns) if isinstance(declared, RecordSchema) else None

    @property
    def reads_headers(self) -> bool:
        """Whether ``decode`` needs the headers."""
        return self._headers is not None

    def decode(self, values: Sequence[bytes | None], headers: Sequence[GivenHeaders] = ()) -> Decoded:
        """All fields of the records; what is wrong with a value counts before what is wrong with its headers."""
        decoded = self._values.decode(values)
        if self._headers is None:
            return decoded
        more = self._headers.decode(headers, values)
        return Decoded(columns={**decoded.columns, **more.columns}, faults=[*more.faults, *decoded.faults])


def reads_headers(topic: Topic) -> bool:
    """Whether fields of the topic are headers."""
    return isinstance(topic.value, RecordSchema) and bool(topic.value.header_fields)
