"""Which encoder a sink's values need."""

from __future__ import annotations

from recount.codec.avro_encoder import Encode, avro_encoder
from recount.codec.protobuf_encoder import protobuf_encoder
from recount.core.topology import Written


def encoder_of(written: Written) -> Encode | None:
    """The encoder of the values of the sink; None where ``recount.core.output`` makes them: JSON and plain values.

    A schema registry has their schema when this is done; raises ``SchemaRefused`` where it does not take it.
    """
    match written.topic.encoding:
        case "avro":
            return avro_encoder(written)
        case "protobuf":
            return protobuf_encoder(written)
        case "json":
            return None
