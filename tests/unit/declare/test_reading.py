"""Item 1.7: tables are read to their end before the records that look rows up in them, or a declaration is refused."""

from __future__ import annotations

import pytest

from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table
from recount.declare.operators.event_time import Layers, newer_tables
from recount.declare.operators.joins import AsOf
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import tumbling
from recount.runtime.errors import InvalidDeclaration
from recount.tables.ledger import PartitionProof


def topic(name: str) -> Topic:
    return Topic(name=name, key="id", value=RecordSchema.of(**{f"{name}_text": STRING}))


A, B, C = (topic(name) for name in "abc")


def layers(*flows: RecordStream) -> Layers:
    outputs = [topic(f"out-{number}") for number in range(len(flows))]
    return Topology(name="t", sinks=[flow.to(out) for flow, out in zip(flows, outputs, strict=True)]).layers


FINALS = stream(B).windowed_by(tumbling("1 s", grace="0 s")).aggregate(n=count()).emit_final()
OWN = stream(A).select(text=col("a_text")).to_table()
LOOKED_UP = stream(A).left_join_table(table(B))
READ: dict[str, tuple[list[RecordStream], Layers]] = {
    "topics that nobody looks up, together": ([stream(A), stream(B)], (("a", "b"),)),
    "tables that are joined, together": ([table(A).join(table(B)).to_stream()], (("a", "b"),)),
    "a table before who looks rows up in it": ([LOOKED_UP], (("b",), ("a",))),
    "and others with that": ([LOOKED_UP, stream(B), stream(C)], (("b",), ("a", "c"))),
    "two tables of one stream, together": ([stream(A).join_table(table(B)).join_table(table(C))], (("b", "c"), ("a",))),
    "a table that looks rows up itself, between": (
        [stream(A).left_join_table(stream(B).left_join_table(table(C)).to_table())],
        (("c",), ("b",), ("a",)),
    ),
    "as of arrival, together": ([stream(A).left_join_table(table(B), as_of="arrival")], (("a", "b"),)),
    "with a grace a topic that looks up itself": ([stream(A).left_join_table(OWN, grace="1 s")], (("a",),)),
    "with a grace a table first, too": ([stream(A).left_join_table(table(B), grace="1 s")], (("b",), ("a",))),
    "a grace gives way to a lookup without one": (
        [stream(B).left_join_table(table(A), grace="1 s"), LOOKED_UP],
        (("b",), ("a",)),
    ),
    "a running total first": ([stream(A).left_join_table(stream(B).aggregate(n=count()))], (("b",), ("a",))),
    "results that are waited for first": (
        [stream(A).left_join_table(FINALS.to_table(), grace="1 s")],
        (("b",), ("a",)),
    ),
}


@pytest.mark.parametrize(("flows", "expected"), READ.values(), ids=READ)
def test_topics_are_read_in_these_layers(flows: list[RecordStream], expected: Layers) -> None:
    assert layers(*flows) == expected


@pytest.mark.parametrize(
    "flows",
    [
        [stream(A).left_join_table(stream(A).select(text=col("a_text")).to_table())],
        [stream(A).left_join_table(table(B)), stream(B).left_join_table(table(A))],
    ],
    ids=["a topic and itself", "two topics and each other"],
)
def test_a_topic_that_would_have_to_be_read_before_itself_is_refused(flows: list[RecordStream]) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        layers(*flows)
    assert "arrival" in str(refused.value)


@pytest.mark.parametrize(
    "versions",
    [
        table(B).join(table(C)),
        FINALS.to_table(),
        table(B).emit_after("1 s"),
        table(B).group_by(text=col("b_text")).aggregate(n=count()),
    ],
    ids=["tables joined", "results of windows", "held back", "grouped anew"],
)
def test_a_table_whose_changes_do_not_come_at_once_is_looked_up_by_arrival_only(versions: Table) -> None:
    with pytest.raises(InvalidDeclaration):
        layers(stream(A).left_join_table(versions))
    assert len(layers(stream(A).left_join_table(versions, as_of="arrival"))) == 1


def newer(table_topic: Topic, *reached: tuple[str, int | None], as_of: AsOf = "event") -> dict[str, str]:
    """What is said of the lookup of a record of ``a`` in ``table_topic``, as far as its topics have been read."""
    sink = stream(A).left_join_table(table(table_topic), as_of=as_of).to(topic("out"))
    parts = [
        PartitionProof(topic=name, partition=number, start=0, end=1, stream_time_ms=time_ms)
        for number, (name, time_ms) in enumerate(reached)
    ]
    return newer_tables(Topology(name="t", sinks=[sink]).nodes(), parts)


def test_a_table_without_an_event_time_that_is_newer_than_what_looks_it_up_is_named() -> None:
    [(lookup, said)] = newer(B, ("a", 4_000), ("a", 5_000), ("b", None), ("b", 5_001)).items()
    assert lookup == "left lookup in b"
    assert said.startswith("b declares no event_time, so its rows count from when they were written to Kafka, the last")
    assert "at 1970-01-01 00:00:05.001, and the records that ask for them are of 1970-01-01 00:00:05 or before" in said


def test_a_table_that_is_no_newer_or_has_an_event_time_or_is_read_as_it_arrives_is_not() -> None:
    assert newer(B, ("a", 5_000), ("b", 5_000)) == {}
    assert newer(B, ("b", 5_000)) == newer(B, ("a", 5_000), ("b", None)) == {}
    timed = Topic(name="b", key="id", event_time="at", value=RecordSchema.of(at=LONG))
    assert newer(timed, ("a", 5_000), ("b", 5_001)) == {}
    assert newer(B, ("a", 5_000), ("b", 5_001), as_of="arrival") == {}
