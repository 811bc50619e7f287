"""The flow by which recovery is measured: as many open keys as it says."""

from __future__ import annotations

import numpy as np
import pytest
from bench.flow import WINDOW_MS
from bench.jobs import GRACE_MS
from bench.recovery import recovery_flow


@pytest.mark.parametrize("keys", [10, 10_000, 1_000_000])
def test_every_key_is_there_once_and_open_in_the_end(keys: int) -> None:
    flow = recovery_flow("orders", keys)
    assert (flow.records, len(np.unique(flow.user))) == (keys, keys)
    ends_ms = flow.timestamp_ms - flow.timestamp_ms % WINDOW_MS + WINDOW_MS
    assert flow.timestamp_ms.max() < ends_ms.min() + GRACE_MS
    assert flow.on_time(GRACE_MS) == keys
