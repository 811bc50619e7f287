"""Cases of results that are larger than their topic takes: ``max.message.bytes`` of 4,096 leaves 3,056 for each."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tests.field.case import IDLE_AFTER, MAX_FUTURE, Case, Result, Sent, ending, record, source

from recount.declare.expressions import coalesce, col
from recount.declare.flow import RecordStream, Table, stream, table
from recount.declare.plain_values import PlainValue
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, decimal, list_of
from recount.declare.topics import Topic
from recount.declare.topology import Topology

FITS = 3_056
SMALL: Mapping[str, str] = {"max.message.bytes": "4096"}


def ending_small(name: str, flow: RecordStream | Table, value: PlainValue | None = None) -> Topology:
    """The stream ``name`` whose sink sets records aside of which the result does not fit."""
    out = Topic(name=f"{name}-out", key="id", partitions=1, retention_ms=-1, configs=SMALL, value=value)
    sink = flow.to(out, on_too_large="dead-letter")
    return Topology(name=name, sinks=[sink], idle_after=IDLE_AFTER, max_future=MAX_FUTURE)


def reason(name: str) -> str:
    return f"too-large: result for {name}-out, limit {FITS}"


KINDS: dict[str, Any] = {
    "text": STRING,
    "größe": LONG,
    "amount": decimal(38, 8),
    "x": DOUBLE,
    "flag": BOOLEAN,
    "tags": list_of(STRING),
    "none": STRING,
}
WRITTEN = (
    r'{"text":"…\"\\\n\u0001é😀","gr\u00f6\u00dfe":-123456789,"amount":-0.00000004,"x":1e+16,"flag":false,'
    r'"tags":["a","\t"],"none":null}'
)
"""A value as it is published, with ``…`` in place of the text that makes it long enough."""
ROOM = FITS - len("kü".encode()) - len(WRITTEN.replace("…", "").encode())


def of_all_kinds(name: str, at_ms: int, room: int) -> Sent:
    text = "x" * room + '"\\\n\x01é😀'
    fields = {"text": text, "größe": -123456789, "amount": Decimal("-0.00000004"), "x": 1e16, "flag": False}
    return record(name, at_ms=at_ms, key="kü", **fields, tags=["a", "\t"], none=None)


def pieces(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One text for each number of the list."""
    return [{"piece": "x" * many} for many in row["sizes"]]


CASES = (
    Case(
        name="2.6 of results of all kinds the byte beyond the limit counts",
        topology=ending_small("f26-kinds", stream(source("f26-kinds", **KINDS))),
        log=[
            [of_all_kinds("f26-kinds", 1_000, ROOM), of_all_kinds("f26-kinds", 2_000, ROOM + 1)],
            [of_all_kinds("f26-kinds", 3_000, 0), of_all_kinds("f26-kinds", 4_000, 10 * FITS)],
        ],
        results={"f26-kinds": [Result(key="kü", value={"größe": -123456789, "x": 1e16}) for _ in range(2)]},
        dead_letters={f"f26-kinds-in-0@{offset}": reason("f26-kinds") for offset in (1, 3)},
    ),
    Case(
        name="2.6 a key counts, in the key of the record and in its value",
        topology=ending_small(
            "f26-key", stream(source("f26-key", text=STRING)).select_key(text=col("text")).select(n=1)
        ),
        log=[
            [
                record("f26-key", at_ms=1_000, text="x" * ((FITS - len('{"text":"","n":1}')) // 2)),
                record("f26-key", at_ms=2_000, text="x" * ((FITS - len('{"text":"","n":1}')) // 2 + 1)),
            ]
        ],
        results={"f26-key": [Result(key="x" * 1_519, value={"n": 1})]},
        dead_letters={"f26-key-in-0@1": reason("f26-key")},
    ),
    Case(
        name="2.6 a plain value counts as it is",
        topology=ending_small("f26-plain", stream(source("f26-plain", text=STRING)), PlainValue.of(text=STRING)),
        log=[[record("f26-plain", at_ms=at_ms, text='"' * many) for at_ms, many in ((1, FITS - 1), (2, FITS))]],
        results={"f26-plain": [Result(key="k", value={"text": '"' * (FITS - 1)})]},
        dead_letters={"f26-plain-in-0@1": reason("f26-plain")},
    ),
    Case(
        name="2.6 a row of a table that does not fit is deleted",
        topology=ending_small("f26-table", table(source("f26-table", text=STRING))),
        log=[
            [
                record("f26-table", at_ms=1_000, key="a", text="x"),
                record("f26-table", at_ms=1_000, key="b", text="x"),
                record("f26-table", at_ms=2_000, key="never", text="x" * FITS),
                record("f26-table", at_ms=3_000, key="a", text="x" * FITS),
                record("f26-table", at_ms=3_000, key="b", text="x" * FITS),
            ],
            [record("f26-table", at_ms=4_000, key="b", text="y")],
        ],
        results={"f26-table": [Result(key="b", value={"text": "y"})]},
        dead_letters={f"f26-table-in-0@{offset}": reason("f26-table") for offset in (2, 3, 4)},
    ),
    Case(
        name="2.6 of several rows of a record those that fit are published, and a lookup can make them too large",
        topology=ending_small(
            "f26-rows",
            stream(source("f26-rows", sizes=list_of(LONG)))
            .flat_map(pieces, piece=STRING)
            .left_join_table(table(source("f26-rows-labels", label=STRING)))
            .with_fields(label=coalesce(col("label"), "")),
        ),
        log=[
            [
                record("f26-rows-labels", at_ms=1_000, key="named", label="n" * 2_000),
                record("f26-rows", at_ms=2_000, sizes=[1, FITS, 2]),
                record("f26-rows", at_ms=3_000, sizes=[2_000]),
                record("f26-rows", at_ms=4_000, key="named", sizes=[2_000, 3]),
            ]
        ],
        results={
            "f26-rows": [
                *(Result(key="k", value={"piece": "x" * many}) for many in (1, 2, 2_000)),
                Result(key="named", value={"piece": "xxx"}),
            ]
        },
        dead_letters={f"f26-rows-in-0@{offset}": reason("f26-rows") for offset in (0, 2)},
    ),
    Case(
        name="2.6 the other sinks of a stream get the record all the same",
        topology=Topology(
            name="f26-both",
            sinks=[
                *ending_small("f26-both", stream(BOTH := source("f26-both", text=STRING))).sinks,
                *ending("f26-other", stream(BOTH)).sinks,
            ],
            idle_after=IDLE_AFTER,
            max_future=MAX_FUTURE,
        ),
        log=[[record("f26-both", at_ms=1_000, text="x" * many) for many in (1, FITS)]],
        results={
            "f26-both": [Result(key="k", value={"text": "x"})],
            "f26-other": [Result(key="k", value={"text": "x" * many}) for many in (1, FITS)],
        },
        dead_letters={"f26-both-in-0@1": reason("f26-both")},
    ),
)
