"""Fields that are headers of the record: the same to the reference, the stream and the recompute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engine.engine import LogRecord
from tests.unit.formats.three_readers import by_stream_and_recompute

from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.plain_values import PlainValue
from recount.declare.schema import (
    BYTES,
    DATE,
    LONG,
    STRING,
    TIMESTAMP,
    BadRecord,
    Headers,
    RecordSchema,
    header,
    list_of,
    nested,
)
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.runtime.errors import InvalidDeclaration
from recount.testing import TopologyDriver

SCHEMA = RecordSchema.of(
    n=LONG,
    trace=header("trace-id"),
    at=header("sent", kind=TIMESTAMP),
    day=header("day", kind=DATE),
    raw=header("raw", kind=BYTES),
    again=header("trace-id", kind=BYTES),
    m=LONG,
    required=("trace",),
)
TOPIC = Topic(name="events", key="id", value=SCHEMA)
TRACE: tuple[str, bytes] = ("trace-id", b"t1")
Record = tuple[bytes | None, Sequence[tuple[str, bytes | None]]]


def by_all(records: Sequence[Record], schema: RecordSchema = SCHEMA) -> list[dict[str, Any] | str]:
    """Rows, and the reason where one is bad; fails where reference, stream and recompute do not say the same."""
    told = [_by_reference(value, headers, schema) for value, headers in records]
    topic, batch = replace(TOPIC, value=schema), [LogRecord(value=value, headers=headers) for value, headers in records]
    found = by_stream_and_recompute(topic, batch, needs_key=False)
    assert [one if isinstance(one, str) else {name: one[name] for name in schema.fields} for one in found] == told
    return told


def _by_reference(value: bytes | None, headers: Headers, schema: RecordSchema) -> dict[str, Any] | str:
    try:
        return dict.fromkeys(schema.fields) if value is None else schema.decode(value, headers)
    except BadRecord as bad:
        return bad.reason


def test_a_header_is_a_field_of_the_row() -> None:
    sent = [
        ("trace-id", b"t0"),
        ("sent", b"1970-01-01T00:00:01.5Z"),
        ("day", b"2024-02-29"),
        ("raw", b"\x01\xff"),
        TRACE,
    ]
    told = by_all(
        [
            (b'{"n":1,"trace":"of the value","m":2}', sent),
            (b"{}", [TRACE, ("other", b"\xff")]),
            (b"{}", [TRACE, ("sent", None), ("day", None), ("raw", b"")]),
            (None, sent),
            (None, []),
        ]
    )
    nothing = dict.fromkeys(SCHEMA.fields)
    only = {**nothing, "trace": "t1", "again": "dDE="}
    assert told == [
        {"n": 1, "trace": "t1", "at": 1_500, "day": "2024-02-29", "raw": "Af8=", "again": "dDE=", "m": 2},
        only,
        {**only, "raw": ""},
        nothing,
        nothing,
    ]


@pytest.mark.parametrize(
    ("value", "headers", "reason"),
    [
        (b"{}", [], "schema"),
        (b"{}", [("trace-id", None)], "schema"),
        (b"{}", [TRACE, ("trace-id", None)], "schema"),
        (b"{}", [("trace-id", b"\xff")], "schema"),
        (b"{}", [("Trace-Id", b"t1")], "schema"),
        (b"{}", [TRACE, ("sent", b"soon")], "schema"),
        (b"{}", [TRACE, ("sent", b"")], "schema"),
        (b"{}", [TRACE, ("day", b"2023-02-29")], "schema"),
        (b"{", [("trace-id", b"\xff")], "undecodable"),
        (b'{"n":"x"}', [TRACE], "schema"),
    ],
)
def test_a_header_that_is_not_what_is_declared_makes_the_record_bad(
    value: bytes, headers: list[tuple[str, bytes | None]], reason: str
) -> None:
    assert by_all([(value, headers)]) == [reason]


_names = st.sampled_from(["trace-id", "sent", "day", "raw", "other"])
_values = st.none() | st.binary(max_size=4) | st.sampled_from([b"1970-01-01T00:00:00Z", b"2024-02-29", "é".encode()])


@given(
    st.lists(
        st.tuples(st.sampled_from([b"{}", b'{"n":1}', b"{", None]), st.lists(st.tuples(_names, _values))),
        min_size=1,
        max_size=4,
    )
)
def test_any_headers_are_the_same_to_all(records: list[Record]) -> None:
    by_all(records)


def test_a_stream_reads_headers_and_can_take_its_time_from_one() -> None:
    topic = replace(TOPIC, event_time="at")
    counts = stream(topic).select_key(trace=col("trace")).windowed_by(tumbling("1 s", grace="0 s")).aggregate(n=count())
    topology = Topology(name="traces", sinks=[counts.emit_final().to(Topic(name="traces-seen", key="trace"))])
    driver = TopologyDriver(topology)

    def pipe(**headers: str | bytes) -> str:
        named: Mapping[str, str | bytes] = {name.replace("_", "-"): one for name, one in headers.items()}
        return driver.pipe("events", key="k", value={"n": 1}, timestamp_ms=0, headers=named)

    assert pipe(trace_id="a", sent="1970-01-01T00:00:01Z") == "counted"
    assert pipe(trace_id=b"a", sent="1970-01-01T00:00:01.999Z") == "counted"
    assert pipe(trace_id="a") == "dead-lettered"  # no event time
    assert pipe(sent="1970-01-01T00:00:01Z") == "dead-lettered"
    assert pipe(trace_id="b", sent="1970-01-01T00:00:09Z") == "counted"
    [result] = driver.read("traces-seen")
    assert (result.key, result.value and result.value["n"], result.window) == ("a", 2, (1_000, 2_000))


def test_what_no_header_can_be_is_refused_where_it_is_declared() -> None:
    for kind in (LONG, list_of(STRING), nested("a", kind=STRING), header("a")):
        with pytest.raises(InvalidDeclaration):
            header("b", kind=kind)
    with pytest.raises(InvalidDeclaration):
        header("")
    with pytest.raises(InvalidDeclaration):
        nested("a", kind=header("b"))
    with pytest.raises(InvalidDeclaration, match="a field of the value"):
        RecordSchema.of(trace=header("trace-id"))
    with pytest.raises(InvalidDeclaration):
        PlainValue.of(text=header("trace-id"))  # type: ignore[arg-type]
    with pytest.raises(InvalidDeclaration):
        stream(TOPIC).to(Topic(name="copies", key="id", value=RecordSchema.of(trace=header("trace-id"), n=LONG)))
