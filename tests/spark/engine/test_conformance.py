"""``make conformance ARGS="--engine spark"`` runs cases through the engine, and tells one that fails."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.conformance.report import judged
from tests.conformance.spark_engine import SparkEngine

TUMBLING = {
    "id": "counts",
    "source": "ours",
    "operator": "tumbling",
    "config": {"size_ms": 10, "grace_ms": 2, "aggregate": "count", "emit": "close"},
    "input": [{"topic": "t", "key": "k", "value": "v", "ts": at} for at in (1, 5, 12, 3)],
    "expected_final": [{"key": "k", "window_start": 0, "window_end": 10, "value": 2, "timestamp": 5}],
    "late_dropped": [3],
}
JOIN = {
    "id": "joins",
    "source": "ours",
    "operator": "stream-stream-join",
    "config": {"join_type": "left", "left": "l", "right": "r", "before_ms": 5, "after_ms": 5, "grace_ms": 0},
    "input": [
        {"topic": "l", "key": "k", "value": "a", "ts": 1},
        {"topic": "r", "key": "k", "value": "b", "ts": 4},
        {"topic": "l", "key": "x", "value": "alone", "ts": 2},
        {"topic": "r", "key": "k", "value": "c", "ts": 40},
        {"topic": "l", "key": "k", "value": "d", "ts": 41},
    ],
    "expected_final": [
        {"key": "k", "value": "a+b", "timestamp": 4},
        {"key": "k", "value": "d+c", "timestamp": 41},
        {"key": "x", "value": "alone+null", "timestamp": 2},
    ],
}


@pytest.fixture(scope="module")
def engine(spark: SparkSession) -> SparkEngine:
    """An engine on the session of the test run, which is left running."""
    return SparkEngine(spark)


@pytest.mark.parametrize("case", [TUMBLING, JOIN], ids=lambda case: str(case["id"]))
def test_a_case_passes_and_fails_where_another_result_is_expected(engine: SparkEngine, case: dict[str, Any]) -> None:
    assert judged(case, engine.run).result == "passed"
    first, *others = case["expected_final"]
    wrong = {**case, "expected_final": [{**first, "timestamp": first["timestamp"] + 1}, *others]}
    assert judged(wrong, engine.run).result == "failed"
