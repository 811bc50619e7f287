"""The generated flow keeps its promises: what is planted late is late, what is not is on time."""

from __future__ import annotations

from collections import Counter

from recount.declare.schema import BadRecord
from recount.declare.windows import tumbling
from recount.profile.order_flow import OrderFlow
from topologies.orders import orders

_WINDOWS = tumbling("5 min", grace="5 s")
_FLOW = OrderFlow(end_ms=1_800_000_000_000, records=20_000, late_every=97, bad_every=211)


def _fates(flow: OrderFlow) -> Counter[str]:
    """What the rules of the language say of each record, by stream time of its own partition."""
    stream_time = [0] * flow.partitions
    fates: Counter[str] = Counter()
    assert orders.value is not None
    for order in flow:
        try:
            orders.value.decode(order.value)
        except BadRecord:
            fates["bad"] += 1
            continue
        stream_time[order.partition] = max(stream_time[order.partition], order.timestamp_ms)
        [start] = _WINDOWS.starts(order.timestamp_ms)
        fates["late" if _WINDOWS.is_closed(start + _WINDOWS.size_ms, stream_time[order.partition]) else "counted"] += 1
    return fates


def test_exactly_the_planted_records_are_late_or_bad() -> None:
    fates = _fates(_FLOW)
    assert fates["late"] == _FLOW.late > 50
    assert fates["bad"] == _FLOW.bad > 50
    assert fates["counted"] == _FLOW.records - _FLOW.late - _FLOW.bad


def test_every_partition_gets_late_records() -> None:
    newest = [0] * _FLOW.partitions
    late_partitions = set()
    for order in _FLOW:
        if order.timestamp_ms <= newest[order.partition] - _FLOW.window_ms - _FLOW.grace_ms:
            late_partitions.add(order.partition)
        newest[order.partition] = max(newest[order.partition], order.timestamp_ms)
    assert late_partitions == set(range(_FLOW.partitions))


def test_the_last_partition_lags_behind_the_others() -> None:
    newest = [0] * _FLOW.partitions
    for order in _FLOW:
        newest[order.partition] = max(newest[order.partition], order.timestamp_ms)
    assert min(newest[:-1]) - newest[-1] > _FLOW.lag_ms - _FLOW.jitter_ms


def test_the_same_seed_gives_the_same_flow() -> None:
    assert list(_FLOW) == list(OrderFlow(end_ms=_FLOW.end_ms, records=20_000, late_every=97, bad_every=211))
