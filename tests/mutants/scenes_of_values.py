"""Scenes in which values come to the boundaries of their types, and sums to those of theirs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tests.mutants.scene import Scene
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.random_topology_logs import Event

from recount.declare.aggregates import count, distinct, total
from recount.declare.expressions import Expression, col
from recount.declare.flow import stream
from recount.declare.plain_values import PlainValue
from recount.declare.schema import (
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    LONG,
    LONG_MAX,
    LONG_MIN,
    STRING,
    TIMESTAMP,
    RecordSchema,
    decimal,
    header,
    in_key,
    nested,
)
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import tumbling

VALUES = Topic(
    name="values",
    key="id",
    value=RecordSchema.of(
        n=LONG, d=decimal(9, 2), e=decimal(15, 2), f=decimal(16, 0), g=decimal(38, 2), x=DOUBLE, s=STRING, b=BOOLEAN
    ),
)
PRICES = Topic(name="prices", key="id", value=RecordSchema.of(d=decimal(9, 2), e=decimal(15, 2)))
"""Of decimals that a double can carry, so that they are decoded as doubles; so would these, were the limit higher:"""
NUMBERS = Topic(name="numbers", key="id", value=RecordSchema.of(f=decimal(16, 0)))
MOMENTS = Topic(name="moments", key="id", value=RecordSchema.of(at=TIMESTAMP, day=DATE, raw=BYTES))
"""Alone, for values within others are decoded in another way."""
NESTED = Topic(name="nested", key="id", value=RecordSchema.of(city=nested("to", "city", kind=STRING), n=LONG))
CALLS = Topic(
    name="calls",
    key="id",
    value=RecordSchema.of(
        n=LONG, who=header("who"), at=header("at", kind=TIMESTAMP), raw=header("raw", kind=BYTES), required=("who",)
    ),
)
PAIRS = Topic(
    name="pairs",
    key="id",
    value=RecordSchema.of(a=in_key("a", kind=LONG), n=LONG, b=in_key("b", "c"), required=("a",)),
    key_form="json",
)
SINGLES = Topic(name="singles", key="id", value=RecordSchema.of(a=in_key("a"), n=LONG), key_form="json")
FACTORS = Topic(name="factors", key="id", value=RecordSchema.of(g=decimal(38, 0), h=decimal(38, 0)))
DEVICES = Topic(name="devices", key="id", value=RecordSchema.of(n=LONG), key_form="bytes")
_LONGS = (LONG_MIN - 1, LONG_MIN, LONG_MAX, LONG_MAX + 1)
_CASES = (
    *(f'{{"n":{n}}}' for n in _LONGS),
    *(f'{{"n":{n},"d":"1e2"}}' for n in _LONGS),
    '{"n":1.0}',
    '{"n":"1"}',
    *(f'{{"d":{d}}}' for d in ("9999999.99", "10000000.00", "-9999999.99", "-10000000.00", "0.001", "1e2", '"12.50"')),
    *(f'{{"d":{d}}}' for d in ('"9999999.99"', '"10000000.00"', '"1e2"', '"0.001"', "0.29999999999999999")),
    *(f'{{"e":{e}}}' for e in ('"0.29999999999999999"', "0.29999999999999999", "9999999999999.99", '"1e13"')),
    *(f'{{"f":{f}}}' for f in ("9007199254740993", "9999999999999999", "10000000000000000")),
    *(f'{{"g":"{"9" * digits}.99"}}' for digits in (34, 35, 36, 37)),
    *(f'{{"g":-{"9" * digits}.99}}' for digits in (18, 19, 36, 37)),
    '{"x":1e308}',
    '{"x":1e309}',
    *(f'{{"s":"\\u{code}"}}' for code in ("d7ff", "d800", "dfff", "e000")),
    '{"b":1}',
    "{",
    "[]",
)


_PRICES = (
    *(f'{{"d":{d}}}' for d in (9999999.98, "9999999.99", "10000000.00", "-9999999.99", "-10000000.00", "0.001", "1e2")),
    *(f'{{"e":{e}}}' for e in ("0.29999999999999999", "9999999999999.99", "10000000000000.00")),
)


_OFFSETS = ("Z", "+01:00", "-01:00", "+23:59", "-23:59", "+24:00", "+00:60", "+0100", "")
_PARTS = (".5", ".05", ".0009", ".9999", ".123456789", ".1234567890", ".")
_MOMENTS = (
    *(f'{{"at":"1970-01-02T00:00:00{offset}"}}' for offset in _OFFSETS),
    *(f'{{"at":"1969-12-31T23:59:59{part}Z"}}' for part in _PARTS),
    '{"at":"1970-01-01T24:00:00Z"}',
    '{"at":0}',
    *(f'{{"day":"{day}"}}' for day in ("2024-02-29", "2023-02-29", "2024-2-29", "0000-01-01", "")),
    *(f'{{"raw":"{raw}"}}' for raw in ("AQI=", "AQJ=", "AQI", "-_8=", "")),
)
_ANN: tuple[str, bytes] = ("who", b"ann")
_HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (_ANN,),
    (_ANN, ("who", b"bob")),
    (("who", b"bob"), _ANN, ("at", b"1970-01-01T00:00:01.5Z"), ("raw", b"\xff\xfe\x00")),
    (_ANN, ("raw", b""), ("at", None)),
    (_ANN, ("at", b"soon")),
    (_ANN, ("who", None)),
    (("who", b"\xff"),),
    (("WHO", b"ann"),),
    (),
)
_NESTED = (
    '{"to":{"city":"Bern"},"city":"Bonn"}',
    '{"city":"Bonn"}',
    *(f'{{"to":{to}}}' for to in ('{"city":5}', '{"city":null}', "{}", "null", '"Bern"', "[]", "5")),
)
_FACTORS = [(10**19 - step, 10**19 - step) for step in (1, 0)]


def values() -> Scene:
    """Values of every type."""
    return one_by_one("values", VALUES, [*_CASES, None, b"\xff"])


def prices() -> Scene:
    """Decimals that are sent as numbers."""
    return one_by_one("prices", PRICES, _PRICES)


def readings() -> Scene:
    """Timestamps, dates and bytes."""
    return one_by_one("readings", MOMENTS, [*_MOMENTS, None])


def paths() -> Scene:
    """Values within others."""
    return one_by_one("paths", NESTED, [*_NESTED, None])


def headers() -> Scene:
    """Fields that are headers."""
    records = [LogRecord(timestamp_ms=at, key=b"a", value=b"{}", headers=one) for at, one in enumerate(_HEADERS)]
    deleted = LogRecord(timestamp_ms=len(_HEADERS), key=b"a", value=None, headers=(_ANN,))
    events = [Event("calls", record) for record in [*records, deleted]]
    flow = stream(CALLS).select("n", "who", "at", "raw")
    topology = Topology(name="scene", sinks=[flow.to(Topic(name="out", key="id"))])
    return Scene(name="headers", topology=topology, batches=(*((one,) for one in events), tuple(events)))


def keys_of_bytes() -> Scene:
    """Keys that are any bytes."""
    keys = (b"\xff\xfe", b"\x00", b"", b"ann", b"\xfb\xef\xbe")
    events = tuple(_event("devices", at_ms, b'{"n":1}', key) for at_ms, key in enumerate(keys))
    counts = stream(DEVICES).windowed_by(tumbling("10 ms", grace="0 ms")).aggregate(n=count())
    topology = Topology(name="scene", sinks=[counts.emit_final().to(Topic(name="out", key="id"))])
    last = tuple(_event("devices", 20, b"{}", key) for key in (b"z0", b"z1"))
    return Scene(name="keys of bytes", topology=topology, batches=(events, last))


def keys_with_fields() -> Scene:
    """Keys that are records of two fields, of which one must be there."""
    keys = (b'{"a":1,"b":{"c":"x"}}', b'{"b": {"c": "x"}, "a": 1}', b'{"a":1}', b'{"b":{"c":"x"}}', b"{", None)
    return _of_keys("keys with fields", PAIRS, keys, b'{"a":9}')


def keys_with_a_field() -> Scene:
    """Keys that are records of one field."""
    return _of_keys("keys with a field", SINGLES, (b'{"a":"x"}', b'{"a":"7"}', b'{"a":7}', b"{}", None), b'{"a":"z"}')


def _of_keys(name: str, topic: Topic, keys: Sequence[bytes | None], last: bytes) -> Scene:
    """Counted by their keys; ``last`` closes the window."""
    values = (b'{"n":1}', None, b'{"n":"1"}')
    events = [_keyed(topic.name, at_ms, key, value) for at_ms, key in enumerate(keys) for value in values]
    counts = stream(topic).windowed_by(tumbling("10 ms", grace="0 ms")).aggregate(n=count())
    topology = Topology(name="scene", sinks=[counts.emit_final().to(Topic(name="out", key="id"))])
    ends = tuple(_keyed(topic.name, 20, last, b'{"n":1}', partition) for partition in (0, 1))
    return Scene(name=name, topology=topology, batches=(tuple(events), ends))


def _keyed(topic: str, at_ms: int, key: bytes | None, value: bytes | None, partition: int = 0) -> Event:
    return Event(topic, LogRecord(partition=partition, timestamp_ms=at_ms, key=key, value=value))


def long_numbers() -> Scene:
    """Whole numbers of which two neighbours are one double."""
    return one_by_one("long numbers", NUMBERS, [f'{{"f":{2**53 + step}}}' for step in range(4)])


def plain_numbers() -> Scene:
    """Numbers that are the whole value, and what is more than one."""
    numbers = ("12", "-0", "1.0", f"{LONG_MAX}", f"{LONG_MAX + 1}", "true", None)
    others = ("12\n", " 12", "12 ", '"12"', "12,", '12,"n":13', "")
    topic = Topic(name="plain", key="id", value=PlainValue.of(n=LONG))
    return one_by_one("plain numbers", topic, [*numbers, *others])


def plain_texts() -> Scene:
    """Texts that are the whole value, and one that is no UTF-8."""
    topic = Topic(name="plain", key="id", value=PlainValue.of(s=STRING))
    return one_by_one("plain texts", topic, ["a", "", '"b"', b"\xff", None])


def plain_nulls() -> Scene:
    """A null that is written to a topic with a plain value."""
    out = Topic(name="out", key="id", value=PlainValue.of(s=STRING))
    return one_by_one("plain nulls", VALUES, ['{"s":"a"}', '{"s":""}', '{"s":null}', "{}", None], ["s"], out)


def products() -> Scene:
    """Products of as many digits as there are, and of one more."""
    told = [f'{{"g":{one},"h":{other}}}' for one, other in _FACTORS]
    return one_by_one("products", FACTORS, told, ["g"], product=col("g") * col("h"))


def one_by_one(
    name: str,
    topic: Topic,
    told: Sequence[str | bytes | None],
    fields: Iterable[str] | None = None,
    out: Topic = Topic(name="out", key="id"),
    *,
    is_interpreted: bool = True,
    **made: Expression,
) -> Scene:
    """Each value in a batch of its own, and then all together: some are decoded another way beside others.

    Written are the ``fields``, or all of them, and what is ``made`` of them. ``is_interpreted``: see ``Scene``.
    """
    assert topic.value is not None
    encoded = [one.encode() if isinstance(one, str) else one for one in told]
    events = [_event(topic.name, at_ms, one) for at_ms, one in enumerate(encoded)]
    flow = stream(topic).select(*(topic.value.fields if fields is None else fields), **made)
    batches = (*((one,) for one in events), tuple(events))
    topology = Topology(name="scene", sinks=[flow.to(out)])
    return Scene(name=name, topology=topology, batches=batches, is_interpreted=is_interpreted)


def a_full_sketch() -> Scene:
    """As many different values as a sketch holds, one fewer, and one more, each in a window of its own."""
    flow = stream(VALUES).windowed_by(tumbling("10 ms", grace="0 ms")).aggregate(n=distinct("n", sketch=True))
    topology = Topology(name="scene", sinks=[flow.emit_final().to(Topic(name="out", key="id"))])
    batches = []
    for number, many in enumerate((1_023, 1_024, 1_025)):
        batches.append(tuple(_event("values", 10 * number, b'{"n":%d}' % n) for n in range(many)))
    batches.append(tuple(_event("values", 40, b"{}", key) for key in (b"z0", b"z1")))
    return Scene(name="a full sketch", topology=topology, batches=tuple(batches))


SUMS: dict[str, dict[str, list[Any]]] = {
    "sums of nothing": {"n": [None, None]},
    "a sum of LONG too large": {"n": [LONG_MAX, 1]},
    "a sum of decimals too large": {"g": [9 * 10**37] * 4},
}
"""By field the values of one key that are added up. In 128 bits, the last ones come out as a number of 38 digits."""


def of_sums(name: str) -> Scene:
    """One window of the key ``a``, and records that close it; the values come in one batch, and one by one."""
    schema = RecordSchema.of(n=LONG, d=decimal(9, 2), g=decimal(38, 0), x=DOUBLE)
    flow = stream(Topic(name="sums", key="id", value=schema)).windowed_by(tumbling("10 ms", grace="0 ms"))
    wanted = {f"s{field}": total(field) for field in schema.fields}
    topology = Topology(name="scene", sinks=[flow.aggregate(**wanted).emit_final().to(Topic(name="out", key="id"))])
    batches = []
    for start_ms, at_once in ((0, True),) if name.startswith("a sum of") else ((0, True), (20, False)):
        found = list(_added(SUMS[name], start_ms))
        batches += [tuple(found)] if at_once else [(one,) for one in found]
        batches.append(tuple(_event("sums", start_ms + 10, b"{}", key) for key in (b"z0", b"z1")))
    return Scene(name=name, topology=topology, batches=tuple(batches))


def _added(given: dict[str, list[Any]], start_ms: int) -> Iterator[Event]:
    for number in range(max(map(len, given.values()))):
        value = {field: values[number] for field, values in given.items() if number < len(values)}
        yield _event("sums", start_ms + number, json.dumps(value).encode())


def _event(topic: str, at_ms: int, value: bytes | None, key: bytes = b"a") -> Event:
    return Event(topic, LogRecord(partition=sum(key) % 2, timestamp_ms=at_ms, key=key, value=value))
