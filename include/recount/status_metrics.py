"""What the status of a stream says, as metrics: the same from its driver and from ``recount serve``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from recount.kafka.status import State, StreamStatus

Labels = Sequence[str]

# name: what it is, and its value in a status, None where there is none
_OF_STATUS: Mapping[str, tuple[str, Callable[[StreamStatus], float | None]]] = {
    "lag_records": ("Offsets from what is committed to the ends of the topics", lambda s: s.lag),
    "oldest_unread_timestamp_seconds": ("Time of the oldest record of them", lambda s: _seconds(s.oldest_unread_ms)),
    "open_transaction_seconds": ("For how long an open transaction has stopped reading", lambda s: _blocked(s)),
    "records_per_second": ("Records per second of the last batch", lambda s: s.records_per_second),
    "batch_duration_seconds": ("Duration of the last batch", lambda s: _seconds(s.batch_duration_ms)),
    "commit_duration_seconds": ("Of that, commits to Kafka and Delta", lambda s: _seconds(s.commit_duration_ms)),
    "heartbeat_timestamp_seconds": ("When the driver spoke last", lambda s: _seconds(s.heartbeat_ms)),
    "driver_memory_used_bytes": ("Memory of the driver", lambda s: s.memory_used),
    "driver_memory_left_bytes": ("Memory that is left to the driver", lambda s: s.memory_left),
    "frontier_timestamp_seconds": ("Event time up to which the stream has come", lambda s: _seconds(s.frontier_ms)),
    "frontier_delay_seconds": ("How far the frontier is behind the largest stream time", lambda s: _delay(s)),
}
_TOTALS: Mapping[str, tuple[str, Callable[[StreamStatus], float]]] = {
    "records": ("Records that this driver has read", lambda s: s.records_total),
    "late_records": ("Records that were late", lambda s: s.late_records),
    "dead_letters": ("Records that could not be processed", lambda s: s.dead_letters),
}


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1_000


def _blocked(status: StreamStatus) -> float:
    return 0.0 if status.blocked_since_ms is None else (status.heartbeat_ms - status.blocked_since_ms) / 1_000


def _delay(status: StreamStatus) -> float | None:
    if status.frontier_ms is None or status.stream_time_ms is None:
        return None
    return (status.stream_time_ms - status.frontier_ms) / 1_000


def of_status(statuses: Mapping[str, StreamStatus]) -> Iterator[Metric]:
    """The families that every one of ``statuses``, by stream, has a part in."""
    states = [((name, state), status.state == state) for name, status in statuses.items() for state in get_args(State)]
    text = "1 for the state that the driver was in when it spoke last"
    yield gauge("stream_state", text, ["stream", "state"], states)
    for name, (text, of) in _OF_STATUS.items():
        yield gauge(f"stream_{name}", text, ["stream"], [((stream,), of(one)) for stream, one in statuses.items()])
    for name, (text, total) in _TOTALS.items():
        counter = CounterMetricFamily(f"recount_stream_{name}", f"{text} since the driver started", labels=["stream"])
        for stream, status in statuses.items():
            counter.add_metric([stream], total(status))
        yield counter


def gauge(name: str, text: str, labels: Labels, values: Iterable[tuple[Sequence[object], float | None]]) -> Metric:
    """A family; values that are None are left out."""
    family = GaugeMetricFamily(f"recount_{name}", text, labels=labels)
    for place, value in values:
        if value is not None:
            family.add_metric([str(one) for one in place], float(value))
    return family
