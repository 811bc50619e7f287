"""Spark reads an output table as docs/tables.md shows."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from tests.unit.serve.test_answers import SHOP, ask, order, shown
from tests.unit.serve.written_streams import WrittenStream, as_arrivals, recorded_ms, rows_of


def test_the_snippet_for_spark_reads_what_an_answer_says(spark: SparkSession, tmp_path: Path) -> None:
    stream = WrittenStream(SHOP["order-counts"], tmp_path)
    stream.write([as_arrivals("orders", order("ann", 1), order("bob", 2)), as_arrivals("orders", order("ann", 3))])
    answered = sorted(shown(ask(stream, at=str(recorded_ms(0))), "user_id", "orders"))
    assert rows_of("Spark", spark=spark, data=stream.tables.root, generation=0, batch=0) == answered != []
