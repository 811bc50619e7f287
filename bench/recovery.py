"""Recovery: from the restart after kill -9 to the first new result, by the number of keys in open windows."""

from __future__ import annotations

import time
from functools import cached_property

import numpy as np

from bench.flow import PARTITIONS, Flow, Longs, append, order
from bench.jobs import GRACE_MS
from bench.results import Recovery
from bench.results_topic import VisibleResults
from bench.running import Run
from recount.runtime.errors import Transient

_LIMIT_S = 1_200.0
_SETTLED_S = 2.0
"""After the last result, until nobody has a batch left to repeat: how large that is says nothing of the state."""


class EveryUserOnce(Flow):
    """A flow in which each user orders once, the users in turn."""

    @cached_property
    def user(self) -> Longs:
        """As many as there are records."""
        return np.arange(self.records, dtype=np.int64)


def recovery_flow(topic: str, keys: int) -> Flow:
    """One order for each of ``keys`` users, all in two windows that both stay open; nothing is late.

    The flow begins at the edge of a window, with records of up to 3 s before it, and lasts less than the grace.
    """
    per_second = max(1, keys * 1_000 // (GRACE_MS // 2))
    return EveryUserOnce(topic=topic, records=keys, users=keys, per_second=per_second, late_every=0)


def measure_recovery(run: Run, flow: Flow, repeats: int) -> list[Recovery]:
    """Let the contender take in ``flow``; then ``repeats`` times kill it, append some orders and restart it."""
    results, records = run.results, flow.records
    measured = []
    program = run.started(flow.topic, follow="true")
    try:
        for _ in range(repeats):
            _wait_for(results, records)
            time.sleep(_SETTLED_S)
            program.kill()
            _append_one_for_each_partition(run, flow, records)
            begun_s = time.monotonic()
            program = run.started(flow.topic, follow="true")
            _wait_for(results, records + 1)
            seconds = time.monotonic() - begun_s
            measured.append(Recovery(contender=run.contender.name, keys=flow.users, seconds=seconds))
            records += PARTITIONS
    finally:
        program.kill()
    return measured


def _append_one_for_each_partition(run: Run, flow: Flow, first_id: int) -> None:
    producer = run.bench.cluster.connection.producer()
    newest_ms = int(flow.timestamp_ms.max())
    for user in range(PARTITIONS):
        append(producer, flow.topic, user, order(first_id + user, user, 0, 100), newest_ms)
    producer.flush()


def _wait_for(results: VisibleResults, counted: int) -> None:
    deadline_s = time.monotonic() + _LIMIT_S
    while results.counted < counted:
        results.read(0.05)
        if time.monotonic() > deadline_s:
            raise Transient("results did not come", given=results.counted, expected=str(counted), remedy="see the log")
