"""Whether a stream is well: its last status against its declared limits, as of a given time."""

from __future__ import annotations

from recount.core.durations import readable
from recount.core.topology import Health
from recount.kafka.status import StreamStatus


def ailments(status: StreamStatus, limits: Health, now_ms: int) -> list[str]:
    """What is beyond its limit, each as a sentence with both numbers; empty when the stream is well.

    A value equal to its limit is well. Progress counts only while there is lag. The frontier's age is how far it is
    behind the largest stream time, in event time: so a topic with old records is not ill for that. A driver that is
    starting does not speak while it recovers, and has the time of the progress limit for it.
    """
    if status.state == "starting":
        start_age_ms = now_ms - status.started_at_ms
        late = start_age_ms > limits.progress_age_ms
        return [_beyond("starting for", start_age_ms, limits.progress_age_ms)] if late else []
    found = []
    heartbeat_age_ms = now_ms - status.heartbeat_ms
    if heartbeat_age_ms > limits.heartbeat_age_ms:
        found.append(_beyond("last heartbeat", heartbeat_age_ms, limits.heartbeat_age_ms))
    progress_age_ms = now_ms - (status.last_progress_ms or status.started_at_ms)
    if (status.lag or 0) > 0 and progress_age_ms > limits.progress_age_ms:
        found.append(_beyond("last progress", progress_age_ms, limits.progress_age_ms))
    if (status.lag or 0) > limits.lag:
        found.append(f"lag {status.lag} records, limit {limits.lag}")
    if status.frontier_ms is not None and status.stream_time_ms is not None:
        frontier_age_ms = status.stream_time_ms - status.frontier_ms
        if frontier_age_ms > limits.frontier_age_ms:
            found.append(_beyond("frontier behind stream time", frontier_age_ms, limits.frontier_age_ms))
    if status.failed_batches > limits.failed_batches:
        found.append(f"{status.failed_batches} failed batches in a row, limit {limits.failed_batches}")
    return found


def _beyond(what: str, age_ms: int, limit_ms: int) -> str:
    return f"{what} {readable(age_ms)}, limit {readable(limit_ms)}"
