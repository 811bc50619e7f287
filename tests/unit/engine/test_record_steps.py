"""What tasks do with a record by itself, and what they leave to the driver."""

from __future__ import annotations

from threading import Lock

from pyspark import cloudpickle
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.aggregates import count
from recount.declare.columns import IS_NULL, TIMESTAMP
from recount.declare.expressions import col
from recount.declare.operators.nodes import KEY
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import session
from recount.engine.operators.batch_rows import OFFSET, PARTITION, REACHED, WITHIN
from recount.engine.stage.polars_expressions import field_column
from recount.engine.stage.record_stage import RecordSteps

_ORDERS = Topic(name="orders", key="id", value=RecordSchema.of(user=STRING, amount=LONG, note=STRING))
_LARGE, _SMALL, _COUNTS = (Topic(name=name, key="id") for name in ("large", "small", "counts"))
_PLACE = {PARTITION, OFFSET, TIMESTAMP, REACHED, IS_NULL}


def _columns(steps: RecordSteps) -> list[set[str]]:
    return [set(handed_on.schema) for handed_on in steps.handed_on.values()]


def test_what_only_filters_and_projects_is_done_when_it_leaves_the_tasks() -> None:
    amounts = stream(_ORDERS).select("amount")
    sinks = [amounts.filter(col("amount") > 9).to(_LARGE), amounts.filter(col("amount") <= 9).to(_SMALL)]
    steps = RecordSteps(Topology(name="routes", sinks=sinks))
    assert list(steps.sinks.values()) == sinks
    assert steps.handed_on == {}


def test_rows_go_to_the_driver_with_the_fields_that_are_read_there_and_their_place() -> None:
    counts = (
        stream(_ORDERS)
        .filter(col("amount") > 0)
        .select_key(user=col("user"))
        .windowed_by(session("5 s", grace="0 s"))
        .aggregate(orders=count())
        .emit_final()
    )
    steps = RecordSteps(Topology(name="counts", sinks=[counts.to(_COUNTS)]))
    assert _columns(steps) == [{field_column("user"), *_PLACE}]
    assert steps.columns == {"orders": ["user", "amount"]}


def test_a_function_runs_on_the_driver_and_so_does_all_that_follows() -> None:
    flow = stream(_ORDERS).select("amount").peek(print)
    steps = RecordSteps(Topology(name="peeked", sinks=[flow.filter(col("amount") > 0).to(_LARGE)]))
    assert steps.sinks == {}
    assert _columns(steps) == [{field_column(KEY), field_column("amount"), *_PLACE}]


def test_rows_that_will_meet_again_say_which_way_they_came() -> None:
    amounts = stream(_ORDERS).select("amount")
    both = amounts.filter(col("amount") > 9).merge(amounts.filter(col("amount") > 5))
    steps = RecordSteps(Topology(name="both", sinks=[both.to(_LARGE)]))
    assert all(WITHIN in columns for columns in _columns(steps))


def test_a_task_is_not_sent_the_functions_that_the_driver_runs() -> None:
    held = Lock()
    amounts = stream(_ORDERS).select("amount")
    both = amounts.merge(amounts.peek(lambda _: held.release()))
    assert cloudpickle.dumps(RecordSteps(Topology(name="peeked", sinks=[both.to(_LARGE)])))


def test_a_record_that_reaches_one_of_two_sinks_is_counted_and_one_that_reaches_none_is_filtered() -> None:
    amounts = stream(_ORDERS).select("amount")
    sinks = [amounts.filter(col("amount") > 9).to(_LARGE), amounts.filter(col("amount") < 5).to(_SMALL)]
    engine = TopologyEngine(Topology(name="routes", sinks=sinks), {"orders": 1})
    values = [b'{"user":"u","amount":%d}' % amount for amount in (10, 7, 1)]
    engine.batch({"orders": [LogRecord(partition=0, timestamp_ms=1, value=value) for value in values]})
    proof = engine.clock.partitions["orders", 0]
    assert (proof.counted, proof.filtered) == (2, 1)
    assert [engine.emitted(sink.table).height for sink in sinks] == [1, 1]
