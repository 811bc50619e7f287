"""An output record as it lies on Kafka: one encoding for the interpreter, the stream, the backfill and the audit.

The value is a JSON object with the sink's fields in declared order and no spaces; decimals are numbers written with
their full scale. Where the topic has a plain value, it is that field alone, texts without quotes; Avro is made in
``recount.codec``. Same row, same bytes: that is how two runs are compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Literal

from recount.core.nodes import KEY, WINDOW_END, WINDOW_START
from recount.core.schema import FieldType, with_places

Origin = Literal["stream", "backfill"]
REVISION_HEADER, ORIGIN_HEADER, WINDOW_HEADER = "recount-revision", "recount-origin", "recount-window"
SOURCE_HEADER = "recount-source"
"""Of a record that is no window's result: which records of the log it was made of, ``orders-0@12+payments-3@7``."""
VERSION_HEADER = "recount-version"
"""Of a record that a stream wrote after a reset: the stream's version, 2 or more. Revisions count within a version."""


TIME_HEADER = "recount-timestamp"
"""Of a record whose time is the epoch, 0 ms, which Kafka's clients take for now: it lies in the topic at 1 ms."""


@dataclass(frozen=True, kw_only=True)
class OutputRecord:
    """A record for a sink's topic. ``revision`` 0 is the first result of its key and window; later ones are higher."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes]] = ()


def output_record(
    row: Mapping[str, Any],
    *,
    key: str,
    fields: Mapping[str, FieldType],
    timestamp_ms: int,
    revision: int,
    origin: Origin,
    is_null: bool = False,
    source: str | None = None,
    version: int = 1,
    plain: str | None = None,
    encode: Callable[[Mapping[str, Any]], bytes] | None = None,
) -> OutputRecord:
    """The record of ``row`` whose key is the field ``key``; ``timestamp_ms`` is the largest event time behind it.

    ``is_null``: a deletion, with a null value. ``source``: what it was made of, see ``SOURCE_HEADER``. ``version``: the
    stream's, see ``VERSION_HEADER``. ``plain``: the field that is the whole value, see ``Topic.plain_field``.
    ``encode``: how the fields are written where they are no JSON.
    """
    headers = [(REVISION_HEADER, b"%d" % revision), (ORIGIN_HEADER, origin.encode()), *version_header(version)]
    # a record of others can have fields of these names, and no value in them
    if WINDOW_START in fields and row[WINDOW_START] is not None and row[WINDOW_END] is not None:
        headers.append((WINDOW_HEADER, b"%d/%d" % (row[WINDOW_START], row[WINDOW_END])))
    if source is not None:
        headers.append((SOURCE_HEADER, source.encode()))
    headers += time_header(timestamp_ms)
    if is_null:
        value = None
    elif plain is not None:
        value = encode_plain(with_places(row[plain], fields[plain]))
    else:
        value = (encode or encode_value)(fields_of(row, {name: fields[name] for name in fields if name != KEY}))
    return OutputRecord(
        key=encode_key(row[key]),
        value=value,
        timestamp_ms=timestamp_ms,
        headers=tuple(headers),
    )


def fields_of(row: Mapping[str, Any], fields: Mapping[str, FieldType]) -> dict[str, Any]:
    """The ``fields`` of ``row``, decimals with all their places: as they are encoded."""
    return {name: with_places(row[name], kind) for name, kind in fields.items()}


def version_header(version: int) -> tuple[tuple[str, bytes], ...]:
    """The header that says the ``version`` of the stream; none for the first."""
    return () if version == 1 else ((VERSION_HEADER, b"%d" % version),)


def kafka_time_ms(timestamp_ms: int) -> int:
    """The time under which a record of ``timestamp_ms`` lies in its topic; see ``TIME_HEADER``.

    librdkafka and those who build on it have no way to say 0: they write the time of sending instead.
    """
    return max(timestamp_ms, 1)


def time_header(timestamp_ms: int) -> tuple[tuple[str, bytes], ...]:
    """The header that a record of ``timestamp_ms`` needs to tell its time."""
    return () if timestamp_ms > 0 else ((TIME_HEADER, b"%d" % timestamp_ms),)


def encode_key(key: str | int | None) -> bytes | None:
    """A key as text in UTF-8; a null key stays null."""
    return None if key is None else str(key).encode()


def encode_value(row: Mapping[str, Any]) -> bytes:
    """``row`` as compact JSON with exact decimals.

    >>> encode_value({"region": "EU", "orders": 2, "revenue": Decimal("10.50")})
    b'{"region":"EU","orders":2,"revenue":10.50}'
    """
    members = (f"{_name(name)}:{_encode(value)}" for name, value in row.items())
    return ("{" + ",".join(members) + "}").encode()


def encode_plain(value: Any) -> bytes | None:
    """``value`` alone, as ``PlainValue`` reads it; a null has no text and is a null value.

    >>> encode_plain('say "hi"'), encode_plain(Decimal("10.50")), encode_plain(True)
    (b'say "hi"', b'10.50', b'true')
    """
    if value is None:
        return None
    return (value if isinstance(value, str) else _encode(value)).encode()


_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
"""At hand, for ``json.dumps`` with settings builds one each time: with that a record costs twice as much."""


@cache
def _name(name: str) -> str:
    return json.dumps(name)


def _encode(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, list):
        return f"[{','.join(map(_encode, value))}]"
    return str(value) if type(value) is int else _JSON.encode(value)
