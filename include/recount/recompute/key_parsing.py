"""Keys of records to Arrow columns: the meaning of ``rules.key_values``, for many records at once."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from recount.core.nodes import Source
from recount.core.schema import RecordSchema
from recount.recompute.avro_parsing import AvroParser
from recount.recompute.fetched_schemas import fetched_schema
from recount.recompute.parsing import Parsed, Parser
from recount.recompute.protobuf_parsing import ProtobufParser
from recount.recompute.rules.key_values import (
    as_values,
    text_of,
    within_one_field,
    within_one_field_of,
)


class KeyParser:
    """Reads the keys of a ``source`` with fields of them; ``wanted`` limits what is returned, never what is checked."""

    def __init__(self, source: Source, wanted: Sequence[str]) -> None:
        assert isinstance(source.topic.value, RecordSchema)
        self._schema = as_values(source.topic.value)
        self._wanted = [name for name in self._schema.fields if name in wanted]
        self._parser = _parser(source.topic.key_form, self._schema)

    def added(self, parsed: Parsed, keys: Sequence[bytes | None]) -> tuple[Parsed, pa.Array]:
        """``parsed``, the values of the records, with their ``keys``, and those as rows have them."""
        found = self._parser.parsed(keys)
        needed = next((name for name in self._schema.fields if name in self._schema.required), None)
        bad = {**found.bad}
        if needed is not None:
            bad |= {index: ("schema", f"no {needed}: no key") for index, key in enumerate(keys) if key is None}
        cells = {name: column.to_pylist() for name, column in found.columns.items()}
        texts = [text_of({name: column[index] for name, column in cells.items()}) for index in range(len(keys))]
        more = {name: found.columns[name] for name in self._wanted}
        return Parsed({**parsed.columns, **more}, {**bad, **parsed.bad}), pa.array(texts, pa.string())


def _parser(form: str, schema: RecordSchema) -> Parser | AvroParser | ProtobufParser:
    names = list(schema.fields)
    if form == "avro":
        return AvroParser(within_one_field(schema), names, lambda number: within_one_field_of(fetched_schema(number)))
    return ProtobufParser(schema, names) if form == "protobuf" else Parser(schema, names)
