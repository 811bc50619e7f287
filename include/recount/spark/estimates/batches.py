"""What each batch reads, emits and writes, and what a restart reads back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recount.core.nodes import Sink
from recount.core.stateless import Through
from recount.core.topology import Topology
from recount.spark.estimates.amounts import SECONDS_A_DAY
from recount.spark.estimates.operators import OperatorEstimate
from recount.spark.estimates.rates import rates
from recount.spark.estimates.workload import Workload
from recount.spark.plan import plan_of


@dataclass(frozen=True, kw_only=True)
class BatchEstimate:
    """One batch: records read, rows emitted to all sinks, rows appended to the state table.

    A batch is one Kafka transaction and one append to each table, so ``per_s`` is also how many of these there are.
    ``held`` rows of state are in memory, beside those that grow for ever.
    """

    per_s: float
    records: float
    emitted: float
    changed: float
    held: float
    window_span_ms: int | None

    @property
    def appended_a_day(self) -> float:
        """How many rows are appended to the state table; for how long they stay says ``retained``."""
        return self.changed * self.per_s * SECONDS_A_DAY

    @property
    def restart_rows(self) -> float | None:
        """The rows that a restart reads back: the partials of open windows.

        None the general way, which reads the whole state table: that depends on how long the stream has run.
        """
        if self.window_span_ms is None:
            return None
        return self.changed * (1 + self.per_s * self.window_span_ms / 1_000)


def batch_estimate(topology: Topology, given: Workload, operators: Sequence[OperatorEstimate]) -> BatchEstimate:
    """The estimate of one batch of ``topology``."""
    leaving, seconds = rates(topology, given), given.trigger_ms / 1_000
    states = [state.kept for operator in operators for state in operator.states]
    plan = plan_of(topology)
    return BatchEstimate(
        per_s=1 / seconds,
        records=sum(given.rate_of(source.topic.name) for source in topology.sources) * seconds,
        emitted=sum(rate for node, rate in leaving.items() if isinstance(node, Sink | Through)) * seconds,
        changed=sum(kept.changed for kept in states),
        held=sum(kept.rows for kept in states),
        window_span_ms=None if plan is None else plan.windows.delay_ms + given.late_by_ms,
    )
