"""Rows of a sink as Protobuf values of a schema registry: a zero byte, the id of the file, its first message."""

from __future__ import annotations

import os
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from recount.codec.avro_encoder import Encode
from recount.codec.protobuf_schemas import writer_message
from recount.codec.protobuf_sink_files import sink_file
from recount.codec.registered_schemas import latest_schema, schema_id
from recount.core.nodes import KEY
from recount.core.registry_errors import VARIABLE
from recount.core.schema import FieldType
from recount.core.topology import Written

_FIRST_MESSAGE = b"\0"


def protobuf_encoder(written: Written) -> Encode:
    """The encoder of the values of the sink, whose file has been registered when this is done."""
    fields = tuple((name, kind) for name, kind in written.fields.items() if name != KEY)
    return _encoder(os.environ.get(VARIABLE, ""), written.topic.name, fields)


@lru_cache(maxsize=256)
def _encoder(_address: str, topic: str, fields: tuple[tuple[str, FieldType], ...]) -> Encode:
    file = sink_file(topic, dict(fields), latest_schema(topic))
    made = writer_message(file, (0,)).made  # a file that is none must not be registered
    head = b"\0" + schema_id(topic, file, "PROTOBUF").to_bytes(4, "big") + _FIRST_MESSAGE
    names = [name for name, _ in fields]

    def encode(row: Mapping[str, Any]) -> bytes:
        given = {name: row[name] for name in names if row[name] is not None}
        told = {name: format(one, "f") if isinstance(one, Decimal) else one for name, one in given.items()}
        message: bytes = made.SerializeToString(made(**told))  # a field can be called so, too
        return head + message

    return encode
