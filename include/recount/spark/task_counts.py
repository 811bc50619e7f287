"""How far Spark's tasks of a batch have come, as the driver's own application knows it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from pyspark.sql import SparkSession

_LAST_JOBS = 4


def task_counts(session: SparkSession, group: str) -> Hashable:
    """Of the last jobs of ``group`` which tasks have ended, and how many records the others have read.

    Executors say the latter with their heartbeats, every ten seconds. None where Spark cannot be asked.
    """
    context: Any = session.sparkContext
    tracker = context.statusTracker()
    try:
        found: list[Hashable] = []
        for job in sorted(tracker.getJobIdsForGroup(group))[-_LAST_JOBS:]:
            info = tracker.getJobInfo(job)
            if info is not None:
                found.append((job, info.status, *(_of_stage(context, stage) for stage in info.stageIds)))
        return tuple(found)
    except Exception:  # the application is ending, or the JVM does not answer
        return None


def _of_stage(context: Any, stage: int) -> Hashable:
    info = context.statusTracker().getStageInfo(stage)
    if info is None or not info.numActiveTasks:
        return stage, info and info.numCompletedTasks
    known = context._jsc.sc().statusStore().lastStageAttempt(stage)
    return stage, info.numCompletedTasks, known.inputRecords(), known.shuffleReadRecords()
