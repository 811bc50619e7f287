"""The recompute's own rules: at their boundaries, and beside the stream's on random topologies."""

from __future__ import annotations

import pytest
from tests.unit.engine.random_topologies import drawn_topology

from recount.declare.aggregates import count, total
from recount.declare.expressions import col, lit
from recount.declare.flow import RecordStream
from recount.declare.operators import event_time
from recount.declare.operators.event_time import tries_folds
from recount.declare.operators.keys_and_fields import columns_read, topics_needing_a_key
from recount.declare.operators.nodes import KEY, WindowedAggregate
from recount.declare.operators.processing import Deduplicate
from recount.declare.operators.tables import is_versioned
from recount.declare.schema import LONG, STRING, RecordSchema, in_key
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import ClosingWindows, hopping, session, sliding, tumbling
from recount.recompute.operators.log_order import is_ordered
from recount.recompute.rules import result_rules, time_rules
from recount.recompute.rules.result_rules import fields_needed, topics_that_need_keys
from recount.recompute.rules.time_rules import goes_by_offset, has_versions, overdue_ms

TOPOLOGIES = [drawn_topology(seed).topology for seed in range(200)]
NODES = [(topology, node) for topology in TOPOLOGIES for node in topology.nodes()]
CLICKS = Topic(name="clicks", key="user", value=RecordSchema.of(page=STRING))


@pytest.mark.parametrize(
    ("windows", "closed_at_ms"),
    [
        (tumbling("10 ms", grace="0 ms"), 10),
        (tumbling("10 ms", grace="5 ms"), 15),
        (hopping("10 ms", advance="5 ms", grace="5 ms"), 15),
        (sliding("10 ms", grace="5 ms"), 16),
        (session("4 ms", grace="5 ms"), 20),
    ],
    ids=str,
)
def test_a_window_ending_at_10_is_closed_from_the_documented_time_on(
    windows: ClosingWindows, closed_at_ms: int
) -> None:
    assert [overdue_ms(windows, 10, closed_at_ms + more) for more in (-1, 0, 1)] == [-1, 0, 1]


def test_operators_wait_for_the_same_time_as_in_the_stream() -> None:
    for topology, node in NODES:
        assert time_rules.topics_awaited(node) == event_time.topics_of(node), (topology, str(node))
        assert time_rules.waits_ms(node) == getattr(node, "delay_ms", 0), (topology, str(node))
        assert time_rules.waited_above_ms(node) == event_time.delay_above_ms(node), (topology, str(node))
        assert set(time_rules.judges_above(node)) == set(event_time.judges_above(node)), (topology, str(node))
        assert set(time_rules.refusing_above(node)) == set(event_time.refusing_above(node)), (topology, str(node))
        assert time_rules.is_held_back(node) == event_time.is_held_back(node), (topology, str(node))
        assert time_rules.holds_back(node) == event_time.holds_back(node), (topology, str(node))


def test_the_same_topics_need_keys_and_the_same_tables_have_versions_as_in_the_stream() -> None:
    for topology in TOPOLOGIES:
        assert topics_that_need_keys(topology) == topics_needing_a_key(topology)
    for topology, node in NODES:
        assert has_versions(node) == is_versioned(node), (topology, str(node))
    assert {bool(topics_that_need_keys(topology)) for topology in TOPOLOGIES} == {True, False}


def test_folds_are_tried_at_the_same_operators_as_in_the_stream() -> None:
    found = [(topology, node) for topology, node in NODES if isinstance(node, WindowedAggregate)]
    for topology, node in found:
        assert result_rules.tries_folds(node) == tries_folds(node), (topology, str(node))
    assert {tries_folds(node) for _, node in found} == {True, False}


def test_the_first_of_an_id_is_told_by_the_same_order_as_in_the_stream() -> None:
    found = [(goes_by_offset(node), node.partitioned) for _, node in NODES if isinstance(node, Deduplicate)]
    assert {one for one, _ in found} == {True, False}
    assert all(one == other for one, other in found)


@pytest.mark.parametrize(
    ("by", "by_offset"), [(col(KEY), True), (col("page"), False), (lit("one for all"), False)], ids=str
)
def test_only_an_id_that_chose_the_partition_goes_by_offset(by: object, by_offset: bool) -> None:
    node = stream(CLICKS).deduplicate(by, horizon="1 s").node  # type: ignore[arg-type]
    assert isinstance(node, Deduplicate)
    assert (goes_by_offset(node), node.partitioned) == (by_offset, by_offset)


@pytest.mark.parametrize(("fields", "is_whole"), [(("user",), True), (("user", "page"), False)])
def test_a_field_is_the_key_that_chose_the_partition_only_where_it_is_all_of_it(
    fields: tuple[str, ...], is_whole: bool
) -> None:
    """Records with one part of a key lie in several partitions: which came first depends on how they were read."""
    value = RecordSchema.of(**{name: in_key(name) for name in fields}, n=STRING)
    clicks = stream(Topic(name="clicks", key="user", key_form="json", value=value))
    first = clicks.deduplicate("user", horizon="1 s").node
    assert isinstance(first, Deduplicate)
    assert (goes_by_offset(first), first.partitioned) == (is_whole, is_whole)
    assert is_ordered(clicks.select_key(user=col("user")).node) == is_whole
    assert is_ordered(clicks.node)


FIELDS = RecordSchema.of(who=STRING, n=LONG, kind=STRING, other=LONG, at=LONG, required=("at",))
EVENTS = stream(Topic(name="events", key="id", value=FIELDS, event_time="at"))


def needed(*flows: RecordStream) -> list[str]:
    topology = Topology(
        name="fields", sinks=[flow.to(Topic(name=f"out-{number}", key="who")) for number, flow in enumerate(flows)]
    )
    [source] = {node.topic.name: node for node in topology.sources}.values()
    return fields_needed(topology, source)


def counted(rows: RecordStream) -> RecordStream:
    return rows.windowed_by(tumbling("1 min", grace="0 s")).aggregate(n=count()).emit_final()


@pytest.mark.parametrize(
    ("flows", "expected"),
    [
        ([counted(EVENTS.select_key(who=col("who")))], ["who", "at"]),
        ([counted(EVENTS.select_key(who=col("who")).filter(col("kind") == "a"))], ["who", "kind", "at"]),
        ([EVENTS.select_key(who=col("who")).select(sum=col("n") + 1)], ["who", "n", "at"]),
        ([EVENTS.select_key(who=col("who"))], [*FIELDS.fields]),
        ([counted(EVENTS.select_key(who=col("who"))), EVENTS.select_key(who=col("who"))], [*FIELDS.fields]),
        ([counted(EVENTS.select_key(who=col("who")).deduplicate(by=col("n"), horizon="1 min"))], [*FIELDS.fields]),
    ],
)
def test_whole_rows_need_all_fields_and_others_those_that_are_named(
    flows: list[RecordStream], expected: list[str]
) -> None:
    assert needed(*flows) == expected


def test_a_field_under_another_name_is_needed_where_it_is_read() -> None:
    renamed = EVENTS.select_key(who=col("who")).with_fields(m=col("other"))
    summed = renamed.windowed_by(tumbling("1 min", grace="0 s")).aggregate(m=total("m")).emit_final()
    assert needed(summed) == ["who", "other", "at"]


def test_no_fewer_fields_are_decoded_than_the_stream_reads() -> None:
    for topology in TOPOLOGIES:
        for source in topology.sources:
            assert set(columns_read(topology, source.topic)) <= set(fields_needed(topology, source))
