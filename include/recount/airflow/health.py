"""How a stream is: its last status against its declared limits, as of a given time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from recount.declare.limits import Health
from recount.kafka.status import StreamStatus
from recount.runtime.times import quantity, readable, roughly, told_time

State = Literal["ok", "degraded", "failed"]


@dataclass(frozen=True, kw_only=True)
class StreamHealth:
    """``failed``: the driver ended or makes no progress. ``degraded``: it goes on, and somebody should look.

    ``problems`` are sentences with both numbers.
    """

    state: State
    problems: tuple[str, ...] = ()


def health_of(status: StreamStatus, limits: Health, now_ms: int) -> StreamHealth:
    """The health of the stream whose driver's last word is ``status``."""
    if status.state == "stopped":
        return StreamHealth(state="ok")
    failed = (status.error or "no error given",) if status.state == "failed" else standstill(status, limits, now_ms)
    if failed:
        return StreamHealth(state="failed", problems=failed)
    degraded = alerts(status, limits)
    return StreamHealth(state="degraded" if degraded else "ok", problems=degraded)


def standstill(status: StreamStatus, limits: Health, now_ms: int) -> tuple[str, ...]:
    """Why the driver makes no progress and should be relaunched; empty when it does.

    A value equal to its limit is well. Silence is a fault at once; no progress is one only where there is something to
    do: records that can be read, or a batch. It counts from the last sign of work, or from when there was something to
    do, by the driver's own clock; the driver may wait for its trigger interval before the next batch. A driver that is
    starting may be silent while it recovers, and has the time of the progress limit for each of its steps.
    """
    if status.state == "starting":
        start_age_ms = now_ms - max(status.started_at_ms, status.waiting_since_ms or 0)
        late = start_age_ms > limits.progress_age_ms
        return (_beyond("starting, no step done for", start_age_ms, limits.progress_age_ms),) if late else ()
    found = []
    heartbeat_age_ms = now_ms - status.heartbeat_ms
    if heartbeat_age_ms > limits.heartbeat_age_ms:
        found.append(_beyond("last heartbeat", heartbeat_age_ms, limits.heartbeat_age_ms))
    if status.waiting_since_ms is not None:
        waited_ms = status.heartbeat_ms - status.waiting_since_ms
        limit_ms = limits.progress_age_ms + status.trigger_interval_ms
        if waited_ms > limit_ms:
            found.append(_stands(status, waited_ms, limit_ms))
    return tuple(found)


def _stands(status: StreamStatus, waited_ms: int, limit_ms: int) -> str:
    if (status.batch_begun_ms or 0) > (status.last_progress_ms or 0):
        return _beyond("the batch at hand: no sign of work for", waited_ms, limit_ms)
    unread = quantity(status.lag or 0, "record waits", "records wait")
    return f"no batch for {roughly(waited_ms)} while {unread}, limit {readable(limit_ms)}"


def alerts(status: StreamStatus, limits: Health) -> tuple[str, ...]:
    """Return what is beyond its limit though the driver works; a relaunch would mend none of it.

    The frontier's age is how far it is behind the largest stream time, in event time: old records alone raise none.
    """
    found = []
    if (status.lag or 0) > limits.lag:
        found.append(f"lag {quantity(status.lag or 0, 'record')}, limit {limits.lag:,}")
    found += _blocked(status, limits)
    if status.frontier_ms is not None and status.stream_time_ms is not None:
        frontier_age_ms = status.stream_time_ms - status.frontier_ms
        if frontier_age_ms > limits.frontier_age_ms:
            found.append(_beyond("frontier behind stream time", frontier_age_ms, limits.frontier_age_ms))
    if status.memory_limit and status.memory_left is not None:
        share = 1 - status.memory_left / status.memory_limit
        if share > limits.memory:
            found.append(_short_of_memory(status, share, limits.memory))
    found += limits.excesses(status.records_total, status.dead_letters, status.late_records)
    last = (status.batch_records, status.batch_dead_letters, status.batch_late_records)
    found += limits.excesses_of_batch("the last batch", *last)
    if status.lookup is not None:
        found += limits.excess_of_lookup(
            status.lookup, status.lookup_records, status.lookup_misses, status.lookup_cause
        )
    return tuple(found)


def _blocked(status: StreamStatus, limits: Health) -> Iterator[str]:
    """Reading that an open transaction stops: nothing is lost, and nothing comes until that is ended."""
    if status.blocked_place is None or status.blocked_offset is None or status.blocked_since_ms is None:
        return
    stood_ms = status.heartbeat_ms - status.blocked_since_ms
    if stood_ms <= limits.open_transaction_ms:
        return
    topic, _, partition = status.blocked_place.rpartition("-")
    end = f"kafka-transactions.sh abort --topic {topic} --partition {partition} --start-offset {status.blocked_offset}"
    yield (
        f"reading of {status.blocked_place} stands at offset {status.blocked_offset}"
        f" since {told_time(status.blocked_since_ms)} UTC ({roughly(stood_ms)}): an open transaction"
        f" of {status.blocked_by or 'a producer that could not be named'};"
        f" where nobody ends it: {end}"
    )


def _short_of_memory(status: StreamStatus, share: float, limit: float) -> str:
    left, used = ((number or 0) / 2**30 for number in (status.memory_left, status.memory_used))
    told = f"{share:.0%} of the memory in use, limit {limit:.0%}: {left:.1f} GiB left, the driver holds {used:.1f} GiB"
    return f"{told}; see `recount estimate` for what the state needs, and run it on more"


def _beyond(what: str, age_ms: int, limit_ms: int) -> str:
    return f"{what} {roughly(age_ms)}, limit {readable(limit_ms)}"
