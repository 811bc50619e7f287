"""Which encoder a sink's values need."""

from __future__ import annotations

from recount.codec.avro_encoder import Encode, avro_encoder
from recount.core.topology import Written


def encoder_of(written: Written) -> Encode | None:
    """The encoder of the values of the sink; None where ``recount.core.output`` makes them: JSON and plain values."""
    return avro_encoder(written) if written.topic.encoding == "avro" else None
