"""When the nightly audits begin: each at a time of its own, the same every night."""

from __future__ import annotations

import os
from datetime import timedelta
from zlib import crc32

from airflow.sdk import CronTriggerTimetable

FIRST_HOUR, MINUTES = 1, 120
"""The nights begin within so many minutes from this hour on, UTC."""
DEADLINE = timedelta(hours=6)
"""A run that has not ended so long after it was queued is told to the notifiers."""


def nightly(name: str, schedule: str | None = None) -> CronTriggerTimetable | None:
    """When ``schedule`` says; without one, every night at a time that ``name`` alone decides; None for "never".

    Without a start date the first run is the next night's: what was before the stream is nobody's audit. After nights
    that were missed, because Airflow was down or the DAG was paused, one run is due at once, for all of them.
    """
    if schedule == "never":
        return None
    minute = crc32(name.encode()) % MINUTES
    cron = schedule or f"{minute % 60} {FIRST_HOUR + minute // 60} * * *"
    # Airflow takes run_immediately=False for a tenth of the interval: a stream that is new in the morning would be
    # audited for the night before
    return CronTriggerTimetable(cron, timezone="UTC", interval=timedelta(days=1), run_immediately=timedelta(0))


def audit_pool() -> str:
    """The pool in which audits run: as many Spark applications at a time as it has slots."""
    return os.environ.get("RECOUNT_AUDIT_POOL") or "default_pool"
