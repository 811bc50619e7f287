"""Tasks of Spark are a sign of work of the batch that they belong to, and of no other."""

from __future__ import annotations

import time
from collections.abc import Hashable
from threading import Event

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from recount.engine.driver.stream_reports import task_counts


def test_each_task_that_ends_is_seen_in_the_group_of_its_job_alone(spark: SparkSession) -> None:
    over = Event()

    def work() -> None:
        spark.sparkContext.setJobGroup("busy", "busy")
        spark.sparkContext.parallelize(range(8), 8).foreach(lambda _: time.sleep(0.3))
        over.set()

    before, seen = task_counts(spark, "busy"), set[Hashable]()
    thread = InheritableThread(target=work, daemon=True)
    thread.start()
    while not over.wait(0.1):
        seen.add(task_counts(spark, "busy"))
    assert len(seen - {before}) >= 3, seen
    thread.join()
    assert task_counts(spark, "busy") == task_counts(spark, "busy") != before
    assert task_counts(spark, "idle") == ()
