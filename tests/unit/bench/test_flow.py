from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from bench.flow import PARTITIONS, WINDOW_MS, Flow, order
from bench.jobs import GRACE_MS, orders_topic

_FLOW = Flow(topic="orders", records=20_000, per_second=10)


def _on_time_record_by_record(flow: Flow, grace_ms: int) -> int:
    stream_time = [-1] * PARTITIONS
    total = 0
    for partition, timestamp_ms in zip(flow.partition.tolist(), flow.timestamp_ms.tolist(), strict=True):
        stream_time[partition] = max(stream_time[partition], timestamp_ms)
        window_end = timestamp_ms // WINDOW_MS * WINDOW_MS + WINDOW_MS
        total += window_end + grace_ms > stream_time[partition]
    return total


@pytest.mark.parametrize("flow", [_FLOW, replace(_FLOW, lag_ms=600_000)], ids=["abreast", "lagging"])
def test_what_is_on_time_is_judged_by_the_stream_time_of_the_records_own_partition(flow: Flow) -> None:
    assert flow.on_time(GRACE_MS) == _on_time_record_by_record(flow, GRACE_MS)


def test_a_partition_that_lags_loses_nothing() -> None:
    assert replace(_FLOW, lag_ms=600_000).on_time(GRACE_MS) == _FLOW.on_time(GRACE_MS)


def test_one_in_late_every_is_late_and_no_other() -> None:
    late = _FLOW.records - _FLOW.on_time(GRACE_MS)

    assert late == _FLOW.records // _FLOW.late_every
    assert replace(_FLOW, late_every=0).on_time(GRACE_MS) == _FLOW.records


def test_the_same_seed_gives_the_same_flow_and_another_seed_another() -> None:
    assert (replace(_FLOW).timestamp_ms == _FLOW.timestamp_ms).all()
    assert (replace(_FLOW, seed=1).timestamp_ms != _FLOW.timestamp_ms).any()


def test_an_order_is_what_the_declared_schema_takes() -> None:
    schema = orders_topic("orders").value
    assert schema is not None

    decoded = schema.decode(order(7, 12, 6, 1_205))

    assert decoded["order_id"] == "0000000007"
    assert decoded["user_id"] == "user-12"
    assert decoded["region"] is None
    assert decoded["amount"] == Decimal("12.05")
