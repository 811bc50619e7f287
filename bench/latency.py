"""Latency from produce to visible output, at a fixed rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from confluent_kafka import Producer

from bench.flow import REGIONS, append, order
from bench.results import Latency
from bench.results_topic import VisibleResults
from bench.running import Run
from recount.runtime.errors import Transient

Seconds = npt.NDArray[np.float64]

_SLOT_S = 0.01
_PATIENCE_S = 60.0


def measure_latency(run: Run, topic: str, *, per_second: int, warm_up_s: float, measured_s: float) -> Latency:
    """Produce to ``topic``, which must be empty, while the contender follows it; records of the warm-up do not count.

    The n-th record produced is visible as soon as the results that a ``read_committed`` reader has seen count n
    records between them. So it needs nothing of the contender but its results.
    """
    program = run.started(topic, follow="true", **{"max-offsets": 200_000})
    try:
        program.wait_for("measuring")
        source = SteadySource(run.bench.cluster.connection.producer(), topic, per_second, warm_up_s + measured_s)
        source.start()
        moments_s, counted = watch(run.results, source)
    finally:
        program.kill()
    first = round(per_second * warm_up_s)
    produced_s = source.produced_s[first:]
    visible_s = became_visible_s(moments_s, counted, first, len(source.produced_s))
    latencies_ms = (visible_s - produced_s[: len(visible_s)]) * 1_000
    if not len(latencies_ms):
        raise Transient("nothing became visible", given=run.contender.name, remedy="read its log; warm up longer")
    p50_ms, p99_ms = np.percentile(latencies_ms, [50, 99])
    return Latency(
        job=run.job.name,
        contender=run.contender.name,
        per_second=per_second,
        records=len(produced_s),
        p50_ms=float(p50_ms),
        p99_ms=float(p99_ms),
        lost=len(produced_s) - len(visible_s),
    )


class SteadySource(threading.Thread):
    """Produces orders of now, in order and on schedule; ``produced_s`` says when (monotonic seconds)."""

    def __init__(self, producer: Producer, topic: str, per_second: int, seconds: float) -> None:
        super().__init__(daemon=True)
        self._producer, self._topic = producer, topic
        self._slot = round(per_second * _SLOT_S)
        self._slots = round(seconds / _SLOT_S)
        self.produced_s = np.zeros(self._slot * self._slots)

    def run(self) -> None:
        """A slot of records every hundredth of a second."""
        begun_s = time.monotonic()
        for slot in range(self._slots):
            time.sleep(max(0.0, begun_s + slot * _SLOT_S - time.monotonic()))
            first, now_ms = slot * self._slot, time.time_ns() // 1_000_000
            self.produced_s[first : first + self._slot] = time.monotonic()
            for index in range(first, first + self._slot):
                value = order(index, index % 10_000, index % len(REGIONS), index % 50_000)
                append(self._producer, self._topic, index % 10_000, value, now_ms)
            self._producer.poll(0)
        self._producer.flush()


def watch(results: VisibleResults, source: SteadySource) -> tuple[list[float], list[int]]:
    """When (monotonic seconds) how many records were visible, until all are or a minute after the source ended."""
    moments_s: list[float] = []
    counted: list[int] = []
    deadline_s = None
    while results.counted < len(source.produced_s):
        results.read(0.05)
        moments_s.append(time.monotonic())
        counted.append(results.counted)
        if not source.is_alive():
            deadline_s = deadline_s or time.monotonic() + _PATIENCE_S
            if time.monotonic() > deadline_s:
                break
    return moments_s, counted


def became_visible_s(moments_s: Sequence[float], counted: Sequence[int], first: int, end: int) -> Seconds:
    """When each of the records ``first`` <= n < ``end`` became visible, in order; those that never did are left out.

    Counted 0, 2, 3 at the seconds 1, 2, 3: records 0 and 1 became visible at 2, record 2 at 3.
    """
    reached = np.maximum.accumulate(counted)
    seen = np.searchsorted(reached, np.arange(first, end) + 1, side="left")
    return np.asarray(moments_s)[seen[seen < len(reached)]]
