"""A sink that sets aside what its topic does not take: what may be declared, and what the driver does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from recount.declare.aggregates import count
from recount.declare.changes import describe
from recount.declare.expressions import col
from recount.declare.fingerprint import Declared
from recount.declare.flow import RecordStream, Table, stream, table
from recount.declare.operators.nodes import KEY
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import session, tumbling
from recount.runtime.errors import InvalidDeclaration

TEXTS = Topic(name="texts", key="id", value=RecordSchema.of(text=STRING))
NAMES = Topic(name="names", key="id", value=RecordSchema.of(name=STRING))
SMALL = Topic(name="small", key="id", configs={"max.message.bytes": "4096"})


def topology(flow: RecordStream | Table, **settings: Any) -> Topology:
    return Topology(name="example", sinks=[flow.to(SMALL, on_too_large="dead-letter")], **settings)


def counted(flow: RecordStream) -> RecordStream:
    return flow.windowed_by(tumbling("1 s", grace="0 s")).aggregate(n=count()).emit_final()


@pytest.mark.parametrize(
    "topic",
    [
        replace(SMALL, configs={}),
        replace(SMALL, configs={"max.message.bytes": "2047"}),
        replace(SMALL, configs={"max.message.bytes": "4 kB"}),
        replace(SMALL, configs={"max.message.bytes": "-1"}),
        replace(SMALL, encoding="avro"),
        replace(SMALL, encoding="protobuf"),
    ],
)
def test_a_topic_that_does_not_say_what_a_text_may_have_is_refused(topic: Topic) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        stream(TEXTS).to(topic, on_too_large="dead-letter")
    assert refused.value.field == "on_too_large of sink small"
    stream(TEXTS).to(topic)


def test_a_policy_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        stream(TEXTS).to(SMALL, on_too_large="drop")  # type: ignore[arg-type]
    assert (refused.value.given, refused.value.expected) == ("drop", "'stop' or 'dead-letter'")


@pytest.mark.parametrize(
    "flow",
    [
        lambda: counted(stream(TEXTS)),
        lambda: stream(TEXTS).windowed_by(session("1 s", grace="0 s")).aggregate(n=count()).emit_each_batch(),
        lambda: stream(TEXTS).aggregate(n=count()),
        lambda: table(TEXTS).group_by(text=col("text")).aggregate(n=count()),
        lambda: table(TEXTS).join(table(NAMES)),
        lambda: table(TEXTS).emit_after("1 s"),
        lambda: stream(TEXTS).join(stream(NAMES), before="1 s", after="1 s", grace="0 s"),
        lambda: stream(TEXTS).left_join_table(table(NAMES), grace="1 s"),
        lambda: stream(TEXTS).deduplicate("text", horizon="1 s"),
        lambda: stream(TEXTS).in_order(grace="1 s"),
        lambda: stream(TEXTS).process(lambda row, _: [row], on_timer=lambda _, __: [], text=STRING),
        lambda: stream(TEXTS).merge(stream(TEXTS).in_order(grace="1 s").filter(col("text") != "")),
    ],
)
def test_a_sink_of_results_without_a_record_of_their_own_is_refused(flow: Callable[[], RecordStream | Table]) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        topology(flow())
    assert refused.value.field == "on_too_large of sink small"
    assert "each made of one record" in refused.value.expected


@pytest.mark.parametrize(
    "flow",
    [
        lambda: stream(TEXTS).filter(col("text") != "").with_fields(n=1).select_key(text=col("text")),
        lambda: stream(TEXTS).flat_map(lambda row: [row], text=STRING).peek(print).repartition(2),
        lambda: stream(TEXTS).merge(stream(NAMES)),
        lambda: stream(TEXTS).left_join_table(table(NAMES)),
        lambda: stream(TEXTS).left_join_table(table(NAMES).filter(col("name") != ""), as_of="arrival"),
        lambda: stream(TEXTS).deduplicate(KEY, horizon="1 s"),
        lambda: stream(TEXTS).process(lambda row, _: [row], text=STRING),
        lambda: table(TEXTS, versioned=True).filter(col("text") != "").to_stream(),
    ],
)
def test_results_that_are_each_made_of_one_record_may_be_set_aside(flow: Callable[[], RecordStream | Table]) -> None:
    assert "size for small <= 3,056 bytes" in describe(topology(flow()))


def test_the_policy_and_its_limit_are_part_of_what_a_stream_means_and_to_stop_is_what_it_meant_before() -> None:
    def fingerprint(topic: Topic, **policy: Any) -> str:
        return Declared.of(Topology(name="example", sinks=[stream(TEXTS).to(topic, **policy)])).fingerprint

    larger = replace(SMALL, configs={"max.message.bytes": "8192"})
    assert fingerprint(SMALL) == fingerprint(SMALL, on_too_large="stop") == fingerprint(larger)
    prints = {
        fingerprint(SMALL),
        fingerprint(SMALL, on_too_large="dead-letter"),
        fingerprint(larger, on_too_large="dead-letter"),
    }
    assert len(prints) == 3
