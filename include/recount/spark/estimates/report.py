"""Estimate and measurement of one stream, put together."""

from __future__ import annotations

from dataclasses import dataclass

from recount.core.topology import Topology
from recount.kafka.status import StreamStatus
from recount.spark.estimates.batch_time import BatchTime
from recount.spark.estimates.batches import BatchEstimate, batch_estimate
from recount.spark.estimates.benchmark import Benchmark
from recount.spark.estimates.exactly_once import ExactlyOnce
from recount.spark.estimates.measured import Held, Measured
from recount.spark.estimates.operators import OperatorEstimate, StateEstimate, operator_estimates
from recount.spark.estimates.retained import Retained, retained
from recount.spark.estimates.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Report:
    """What is expected of a stream, and what was measured of it: None where it has not run, or nothing was published.

    ``status`` is the last word of its driver.
    """

    stream: str
    given: Workload
    operators: tuple[OperatorEstimate, ...]
    batch: BatchEstimate
    exactly_once: ExactlyOnce
    retained: tuple[Retained, ...]
    measured: Measured | None = None
    status: StreamStatus | None = None
    benchmark: Benchmark | None = None

    @classmethod
    def of(
        cls,
        topology: Topology,
        given: Workload,
        *,
        measured: Measured | None = None,
        status: StreamStatus | None = None,
        benchmark: Benchmark | None = None,
    ) -> Report:
        """The estimate of ``topology``, beside what was measured."""
        operators = operator_estimates(topology, given)
        batch = batch_estimate(topology, given, operators)
        return cls(
            stream=topology.name,
            given=given,
            operators=tuple(operators),
            batch=batch,
            exactly_once=ExactlyOnce.of(topology, batch),
            retained=tuple(retained(topology, given, batch.appended_a_day)),
            measured=measured,
            status=status,
            benchmark=benchmark,
        )

    @property
    def records_per_s(self) -> float:
        """Of all source topics together, as assumed."""
        return self.batch.records * self.batch.per_s

    def held(self, state: StateEstimate) -> Held | None:
        """What the stream really holds of ``state``."""
        return None if self.measured is None else self.measured.held.get(state.name)

    @property
    def batch_time(self) -> BatchTime | None:
        """How long the driver's last batch took; None where it has not said it."""
        return BatchTime.of(self.status)

    @property
    def target_ms(self) -> int | None:
        """How long batches have to be to keep up, or as assumed; None where none does, or nothing was measured."""
        time = self.batch_time
        shortest_ms = None if time is None else time.shortest_ms(self.records_per_s)
        return None if shortest_ms is None else max(shortest_ms, self.given.trigger_ms)

    @property
    def restart_s(self) -> float | None:
        """How long a restart takes to read back what it needs: its rows over the rate at which they were read just now.

        Source: recovery time = records to replay / replay rate, as of any changelog.
        """
        per_s = None if self.measured is None else self.measured.rows_read_per_s
        if self.measured is None or per_s is None:
            return None
        rows = self.batch.restart_rows
        return (self.measured.table.rows if rows is None else rows) / per_s
