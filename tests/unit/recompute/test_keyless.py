"""When a null key can be told from the declaration, and when only the steps tell it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recount.declare.aggregates import count
from recount.declare.expressions import coalesce, col, when
from recount.declare.flow import RecordStream
from recount.declare.operators.nodes import KEY
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.recompute.single_flow import Flow, Nulls, keyless_when

ORDERS = Topic(name="orders", key="id", value=RecordSchema.of(region=STRING, country=STRING, required=("country",)))
NEVER: Nulls = frozenset()
Steps = Callable[[RecordStream], RecordStream]

CASES: dict[str, tuple[Steps, Nulls | None]] = {
    "the key of the record: without it the record is bad": (lambda orders: orders, NEVER),
    "a field": (lambda orders: orders.select_key(k=col("region")), frozenset({"region"})),
    "a required field, which a null value lacks too": (
        lambda orders: orders.select_key(k=col("country")),
        frozenset({"country"}),
    ),
    "a field in capitals": (lambda orders: orders.select_key(k=col("region").upper()), frozenset({"region"})),
    "the record's key as a new one": (lambda orders: orders.select_key(k=col(KEY)), frozenset({KEY})),
    "something for every null": (lambda orders: orders.select_key(k=coalesce(col("region"), "none")), NEVER),
    "two fields, either of which will do": (
        lambda orders: orders.select_key(k=coalesce(col("region"), col("country"))),
        None,
    ),
    "a field that was added": (
        lambda orders: orders.with_fields(place=col("region").lower()).select_key(k=col("place")),
        frozenset({"region"}),
    ),
    "a field that covers another": (
        lambda orders: orders.with_fields(region=coalesce(col("region"), "none")).select_key(k=col("region")),
        NEVER,
    ),
    "a choice": (lambda orders: orders.select_key(k=when(col("region") == "EU", col("country"), "other")), None),
    "a field of records of which some are filtered out": (
        lambda orders: orders.filter(col("country") == "DE").select_key(k=col("region")),
        None,
    ),
    "never, though some are filtered out": (
        lambda orders: orders.filter(col("country") == "DE").select_key(k=coalesce(col("region"), "none")),
        NEVER,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_nulls_of_these_columns_and_no_others_leave_a_record_without_a_key(case: str) -> None:
    steps, expected = CASES[case]
    table = steps(stream(ORDERS)).windowed_by(tumbling("1 min", grace="0 s")).aggregate(n=count())
    sink = table.emit_final().to(Topic(name="out", key="k"))
    assert keyless_when(Flow.of(Topology(name="counts", sinks=[sink]))) == expected
