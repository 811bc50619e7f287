"""A difference is explained by what was published, and by what each batch has added to the result."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import Row

from recount.audit.compare.fidelity import PLACES
from recount.audit.explain.causes import BatchShare, batch_between, cause_of
from recount.certificate.finding import Difference
from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.operators.nodes import Sink
from recount.declare.schema import DOUBLE, LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import stream
from recount.declare.windows import tumbling

ORDERS = Topic(name="orders", key="id", value=RecordSchema.of(region=STRING, amount=LONG, weight=DOUBLE))
REVENUE = Topic(name="revenue", key="region")
MOVED = "no window has these bounds: moved by {} ms from the window that starts at 1970-01-01 00:05:00"


def sink() -> Sink:
    windows = stream(ORDERS).select_key(region=col("region")).windowed_by(tumbling("5 min", grace="60 s"))
    made = windows.aggregate(orders=count(), revenue=total("amount"), weight=total("weight"))
    found = made.emit_final().to(REVENUE)
    assert isinstance(found, Sink)
    return found


@pytest.mark.parametrize(
    ("verdict", "changed", "said"),
    [
        ("altered", {}, "the value or time is not what the log gives"),
        ("duplicated", {"copies": 3}, "one revision was written 3 times"),
        ("duplicated", {}, "one row is there more often than the log makes it"),
        ("lost", {"revisions": 0}, "the log makes this row and it was due"),
        ("lost", {"highest": 1}, "a revision before 1 or the last one is missing here"),
        ("extra", {"window_start": 300_001, "window_end": 600_001}, MOVED.format(1)),
        ("extra", {"window_start": 299_999, "window_end": 599_999}, MOVED.format(-1)),
        ("extra", {"lowest": -1}, "not written by this stream"),
        ("extra", {}, "no record that was on time"),
        ("extra", {"expected_text": "{}"}, "other output does not have"),
        ("extra", {"window_start": None, "window_end": None}, "no result of this stream"),
    ],
)
def test_a_row_says_why_it_differs(verdict: str, changed: dict[str, Any], said: str) -> None:
    facts = {"copies": 1, "revisions": 1, "highest": 0, "lowest": 0}
    compared = {f"{place}_{name}": changed.get(name, fact) for place in PLACES for name, fact in facts.items()}
    row = {"window_start": 0, "window_end": 300_000, "expected_text": None, **changed, "kafka_verdict": verdict}
    found = Row(**{name: value for name, value in row.items() if name not in facts}, compared=Row(**compared))
    assert said in cause_of(found, "kafka", sink())


def text(orders: int, revenue: int | None, weight: float) -> str:
    row = {"region": "EU", "orders": orders, "revenue": revenue, "weight": weight}
    return json.dumps({"row": {name: one for name, one in row.items() if one is not None}, "timestamp_ms": 1})


@pytest.mark.parametrize(
    ("actual", "said"),
    [
        (text(7, 70, 0.8000000000000003), "batch 0/0 is counted twice"),
        (text(2, 20, 0.3), "batch 0/1 is not counted"),
        (text(6, 50, 0.5), ""),
        (text(7, None, 0.8), ""),
        (text(7, 70, 0.7), ""),
        ("deleted", ""),
        (None, ""),
    ],
)
def test_the_batch_is_named_whose_share_is_the_whole_difference(actual: str | None, said: str) -> None:
    """Of 5 orders, 50 and 0.5 in all."""
    shares = [
        BatchShare(name="batch 0/0", added={"orders": 2, "revenue": 20, "weight": 0.1 * 3}, read=()),
        BatchShare(name="batch 0/1", added={"orders": 3, "revenue": 30, "weight": 0.2}, read=()),
    ]
    one = Difference(
        kind="output", place="topic revenue", verdict="altered", expected=text(5, 50, 0.5), actual=actual, cause=""
    )
    assert batch_between(one, sink().fields, shares) == said
