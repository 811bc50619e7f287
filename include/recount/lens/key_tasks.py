"""In which partition of a repartition topic Kafka Streams would put a key, and so which of its tasks would have it."""

from __future__ import annotations

from collections.abc import Iterable

_SEED = 0x9747B28C
_M, _R = 0x5BD1E995, 24
_32_BITS = 0xFFFFFFFF


def task_of(key: str | int, tasks: int) -> int:
    """The partition, of ``tasks``, of a key as Kafka's own serializers write it: a text in UTF-8, a LONG in 8 bytes."""
    raw = key.encode() if isinstance(key, str) else key.to_bytes(8, "big", signed=True)
    return (murmur2(raw) & 0x7FFFFFFF) % tasks


def murmur2(data: bytes) -> int:
    """The hash of Kafka's default partitioner, as 32 bits without a sign.

    Source: Austin Appleby's MurmurHash2, with the seed of org.apache.kafka.common.utils.Utils.murmur2.
    """
    length = len(data)
    hashed = _SEED ^ length
    whole = length - length % 4
    for word in _words(data[:whole]):
        mixed = word * _M & _32_BITS
        mixed = (mixed ^ mixed >> _R) * _M & _32_BITS
        hashed = hashed * _M & _32_BITS ^ mixed
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _32_BITS
    hashed = (hashed ^ hashed >> 13) * _M & _32_BITS
    return hashed ^ hashed >> 15


def _words(data: bytes) -> Iterable[int]:
    return (int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4))
