"""What the declared retention of a stream's tables comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recount.core.retention import ageing
from recount.core.topology import Topology
from recount.spark.estimates.amounts import SECONDS_A_DAY
from recount.spark.estimates.rates import rates
from recount.spark.estimates.workload import Workload
from recount.spark.plan import plan_of

_DAY_MS = SECONDS_A_DAY * 1_000


@dataclass(frozen=True, kw_only=True)
class Retained:
    """A table that grows by ``rows_a_day`` and keeps them for ``days``; None: for ever.

    ``last_stay``: of a table whose rows replace each other the last one of each key stays besides.
    """

    table: str
    rows_a_day: float
    days: float | None
    last_stay: bool = False

    @property
    def rows(self) -> float | None:
        """How many rows there are in the end; None where they grow for ever."""
        return None if self.days is None else self.rows_a_day * self.days


def retained(topology: Topology, given: Workload, appended_a_day: float) -> Sequence[Retained]:
    """The tables of ``topology`` that grow, of whose state ``appended_a_day`` rows are written.

    The state of a graph is not among them: its table stays in proportion to the state. Late and rejected records are
    not known beforehand.
    """
    leaving = rates(topology, given)
    days = None if topology.retention_ms is None else topology.retention_ms / _DAY_MS
    outputs = [
        Retained(
            table=f"outputs/{node.table}",
            rows_a_day=leaving[node] * SECONDS_A_DAY,
            days=None if ageing(node) is None else days,
            last_stay=ageing(node) == "table",
        )
        for node in topology.written
    ]
    state = [] if plan_of(topology) is None else [Retained(table="state", rows_a_day=appended_a_day, days=days)]
    ledger = Retained(table="ledger", rows_a_day=_DAY_MS / given.trigger_ms, days=None)
    return [*outputs, *state, ledger]
