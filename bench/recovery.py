"""Recovery: from the restart after kill -9 to the first new result, by the number of keys in open windows."""

from __future__ import annotations

import time

import numpy as np

from bench.flow import PARTITIONS, WINDOW_MS, Flow, append, order
from bench.results import Recovery
from bench.results_topic import VisibleResults
from bench.running import Run
from recount.core.errors import Transient

_LIMIT_S = 600.0


def recovery_flow(topic: str, keys: int) -> Flow:
    """Two orders a user on average, all within a window, so that every key stays open; nothing is late."""
    records = 2 * keys
    per_second = max(1, records * 1_000 // (WINDOW_MS // 2))
    return Flow(topic=topic, records=records, users=keys, per_second=per_second, late_every=0)


def measure_recovery(run: Run, flow: Flow) -> Recovery:
    """Let the contender take in ``flow``, kill it, append some orders and restart it."""
    results = run.results
    program = run.started(flow.topic, follow="true")
    try:
        _wait_for(results, flow.records)
    finally:
        program.kill()
    _append_one_for_each_partition(run, flow)
    begun_s = time.monotonic()
    program = run.started(flow.topic, follow="true")
    try:
        _wait_for(results, flow.records + 1)
        seconds = time.monotonic() - begun_s
    finally:
        program.kill()
    return Recovery(contender=run.contender.name, keys=len(np.unique(flow.user)), seconds=seconds)


def _append_one_for_each_partition(run: Run, flow: Flow) -> None:
    producer = run.bench.cluster.connection.producer()
    newest_ms = int(flow.timestamp_ms.max())
    for user in range(PARTITIONS):
        append(producer, flow.topic, user, order(flow.records + user, user, 0, 100), newest_ms)
    producer.flush()


def _wait_for(results: VisibleResults, counted: int) -> None:
    deadline_s = time.monotonic() + _LIMIT_S
    while results.counted < counted:
        results.read(0.05)
        if time.monotonic() > deadline_s:
            raise Transient("results did not come", given=results.counted, expected=str(counted), remedy="see the log")
