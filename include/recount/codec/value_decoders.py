"""Which decoder a topic's values need."""

from __future__ import annotations

from collections.abc import Sequence

from recount.codec.avro_decoder import AvroDecoder
from recount.codec.decoder import ValueDecoder
from recount.codec.plain_decoder import PlainDecoder
from recount.codec.protobuf_decoder import ProtobufDecoder
from recount.core.plain_values import PlainValue
from recount.core.topics import Topic


def decoder_of(topic: Topic, columns: Sequence[str]) -> ValueDecoder | PlainDecoder | AvroDecoder | ProtobufDecoder:
    """The decoder of the values of ``topic``, which must be declared; ``columns`` are the fields that are returned.

    Fields that are headers are not among them.
    """
    assert topic.value is not None, "checked by Source"
    if isinstance(topic.value, PlainValue):
        return PlainDecoder(topic.value, columns)
    declared = topic.value.of_value
    columns = [name for name in columns if name in declared.fields]
    match topic.encoding:
        case "avro":
            return AvroDecoder(declared, columns)
        case "protobuf":
            return ProtobufDecoder(declared, columns)
        case "json":
            return ValueDecoder(declared, columns)
