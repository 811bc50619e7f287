"""Lookups: in which order topics are read, how far back they look, and where neither can be."""

from __future__ import annotations

import pytest

from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table, stream, table
from recount.declare.operators.event_time import Layers, newer_tables
from recount.declare.operators.joins import AsOf, StreamTableJoin
from recount.declare.operators.nodes import KEY
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology
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


LEFT = Topic(name="left", key="id", value=RecordSchema.of(l=STRING, n=LONG))
OTHER = Topic(name="other", key="id", value=RecordSchema.of(o=STRING))
RIGHT = Topic(name="right", key="id", value=RecordSchema.of(r=STRING))
DAY_MS = 86_400_000
left = stream(LEFT)
windows = left.windowed_by(tumbling("1 s", grace="0 s")).aggregate(n=count()).emit_final()
near = {"before": "1 s", "after": "1 s", "grace": "0 s"}
BOUNDED: dict[str, RecordStream] = {
    "records": left.filter(col("n") > 0),
    "records of two topics": left.select("l").merge(stream(OTHER).select(l=col("o"))),
    "first ones by offset": left.deduplicate(KEY, horizon="1 s"),
    "first ones by event time": left.deduplicate("l", horizon="1 s").select("n"),
    "records in order": left.in_order(grace="1 s").select_key(l=col("l")),
    "pairs": left.join(stream(OTHER), **near).filter(col("n") > 0),
    "looked up": left.left_join_table(table(OTHER)),
    "processed": left.process(lambda row, _: [{"seen": row["n"]}], seen=LONG),
}
UNBOUNDED: dict[str, RecordStream] = {
    "results of windows": windows,
    "totals": left.aggregate(n=count()).to_stream(),
    "pairs of a left join": left.left_join(stream(OTHER), **near),
    "records that wait for a table": left.left_join_table(table(OTHER), grace="1 s"),
    "records held back, and all": left.in_order(grace="1 s").select("n").merge(left.select("n")),
    "first ones of pairs": left.join(stream(OTHER), **near).deduplicate("l", horizon="1 s"),
    "timers": left.process(lambda *_: [], on_timer=lambda *_: [], seen=LONG),
}


def topology_of(flow: RecordStream) -> Topology:
    return Topology(name="looked-up", sinks=[flow.to(Topic(name="out", key="k"))])


def looked_up(rows: RecordStream, **options: str | None) -> RecordStream:
    return rows.select_key(k="a").left_join_table(table(RIGHT), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", BOUNDED)
def test_a_history_is_400_days_unless_it_is_declared(rows: str) -> None:
    def history(**options: str | None) -> int | None:
        node = looked_up(BOUNDED[rows], **options).node
        assert isinstance(node, StreamTableJoin)
        return node.history_ms

    assert history() == 400 * DAY_MS
    assert history(history="9 ms") == 9
    assert history(history=None) is None
    topology_of(looked_up(BOUNDED[rows], history="9 ms"))


@pytest.mark.parametrize("rows", UNBOUNDED)
def test_where_nobody_knows_when_a_row_comes_it_is_unlimited_and_another_is_refused(rows: str) -> None:
    node = looked_up(UNBOUNDED[rows]).node
    assert isinstance(node, StreamTableJoin) and node.history_ms is None
    with pytest.raises(InvalidDeclaration) as refused:
        topology_of(looked_up(UNBOUNDED[rows], history="9 ms"))
    assert refused.value.field.startswith("history of")


def test_as_of_arrival_needs_no_history() -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        left.join_table(table(RIGHT), as_of="arrival", history="1 s")
    assert refused.value.field == "history of a lookup"
    node = left.join_table(table(RIGHT), as_of="arrival").node
    assert isinstance(node, StreamTableJoin) and node.history_ms is None
