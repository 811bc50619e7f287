"""The generated flow keeps its promises: what is planted late is late, what is not is on time."""

from __future__ import annotations

from collections import Counter

from recount.declare.schema import BadRecord
from recount.declare.windows import tumbling
from recount.profile.demo import OrderFlow
from topologies.orders import orders

_WINDOWS = tumbling("5 min", grace="5 s")
_FLOW = OrderFlow(end_ms=1_800_000_000_000, records=12_000, late_every=97, bad_every=211)


def test_exactly_the_planted_records_are_late_or_bad_and_every_partition_gets_late_ones() -> None:
    """By what the rules of the language say of each record, by stream time of its own partition."""
    stream_time = [0] * _FLOW.partitions
    fates: Counter[str] = Counter()
    late_partitions = set()
    assert orders.value is not None
    for order in _FLOW:
        if order.timestamp_ms <= stream_time[order.partition] - _FLOW.window_ms - _FLOW.grace_ms:
            late_partitions.add(order.partition)
        try:
            orders.value.decode(order.value)
        except BadRecord:
            fates["bad"] += 1
            continue
        stream_time[order.partition] = max(stream_time[order.partition], order.timestamp_ms)
        [start] = _WINDOWS.starts(order.timestamp_ms)
        fates["late" if _WINDOWS.is_closed(start + _WINDOWS.size_ms, stream_time[order.partition]) else "counted"] += 1
    assert fates["late"] == _FLOW.late > 50
    assert fates["bad"] == _FLOW.bad > 50
    assert fates["counted"] == _FLOW.records - _FLOW.late - _FLOW.bad
    assert late_partitions == set(range(_FLOW.partitions))
    assert min(stream_time[:-1]) - stream_time[-1] > _FLOW.lag_ms - _FLOW.jitter_ms, "the last one lags behind"


def test_the_same_seed_gives_the_same_flow() -> None:
    one, other = (OrderFlow(end_ms=_FLOW.end_ms, records=500, late_every=97, bad_every=211) for _ in range(2))
    assert list(one) == list(other)
