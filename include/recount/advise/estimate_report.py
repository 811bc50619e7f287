"""Estimate and measurement of one stream together, with commits and restarts from the published benchmark run.

A figure of the benchmark comes with the name of what was measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from recount.advise.measured import Held, Measured
from recount.advise.state_estimate import OperatorEstimate, StateEstimate, operator_estimates
from recount.advise.workload import SECONDS_A_DAY, Workload
from recount.declare.operators.nodes import Sink
from recount.declare.operators.stateless import Through
from recount.declare.topology import Topology
from recount.engine.stage.partials import AggregationPlan, plan_of
from recount.kafka.status import StreamStatus
from recount.runtime.errors import Terminal
from recount.tables.places import ageing

RESULTS = Path("docs") / "performance" / "results.json"
_ENGINE, _PLAIN = "Recount", "Recount with a plain producer"
_RECORDS_THAT_TELL = 1_000
"""Fewer records take as long as a batch without any."""


def benchmark_figures(path: Path) -> Mapping[str, Sequence[str]]:
    """Figures of Recount in a run of ``make bench`` in ``path``: medians of its repetitions, with what they are of.

    By ``throughput``, ``exactly once``, ``latency`` and ``restart``; empty where it did not measure that. Raises
    ``Terminal`` for a file that is no such run, or is not there.
    """
    try:
        return _figures(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Terminal(
            "benchmark results that cannot be read",
            given=f"{path}: {error!r}",
            expected="what `make bench` writes",
            remedy="run make bench, or name another file with --benchmark",
        ) from error


def _figures(run: Mapping[str, Any]) -> dict[str, list[str]]:
    figures: dict[str, list[str]] = {}
    kinds = ("throughput", "latency", "recovery")
    of_recount = {kind: [row for row in run[kind] if row["contender"] == _ENGINE] for kind in kinds}
    for row in of_recount["throughput"][:1]:
        said = f"{median(_per_s(run, _ENGINE, row)):,.0f} records/s"
        figures["throughput"] = [f"{said} ({row['job']}, {row['records']:,} records)"]
    for row in [row for row in run["throughput"] if row["contender"] == _PLAIN][:1]:
        both, plain = _per_s(run, _ENGINE, row), _per_s(run, _PLAIN, row)
        if both:
            said = f"{median(both):,.0f} records/s, with a plain producer {median(plain):,.0f}"
            runs = f"single runs {min(both + plain):,.0f} to {max(both + plain):,.0f}"
            figures["exactly once"] = [f"{said} ({row['job']}, {row['records']:,} records, {runs})"]
    for row in of_recount["latency"][:1]:
        said = f"p50 {row['p50_ms']:,.0f} ms, p99 {row['p99_ms']:,.0f} ms"
        figures["latency"] = [f"{said} (produce to visible, {row['job']}, {row['per_second']:,} records/s)"]
    restarts: dict[int, list[float]] = {}
    for row in of_recount["recovery"]:
        restarts.setdefault(row["keys"], []).append(row["seconds"])
    figures["restart"] = [f"{median(took):.1f} s (restart with {keys:,} keys)" for keys, took in restarts.items()]
    return figures


def _per_s(run: Mapping[str, Any], contender: str, like: Mapping[str, Any]) -> list[float]:
    """The records a second of each run of ``contender`` at the work of the row ``like``."""
    work = ("job", "flow", "records")
    rows = [row for row in run["throughput"] if row["contender"] == contender]
    return [row["records"] / row["seconds"] for row in rows if all(row.get(one) == like.get(one) for one in work)]


@dataclass(frozen=True, kw_only=True)
class Retained:
    """A table that grows by ``rows_a_day`` and keeps them for ``days``; None: for ever."""

    table: str
    rows_a_day: float
    days: float | None

    @property
    def rows(self) -> float | None:
        """How many rows there are in the end; None where they grow for ever."""
        return None if self.days is None else self.rows_a_day * self.days


@dataclass(frozen=True, kw_only=True)
class BatchTime:
    """A batch of ``records`` took ``batch_ms``, of which its commit to Kafka and Delta took ``commit_ms``.

    The commit counts as what a batch takes whatever is in it, the rest as the records': 40,000 records in 630 ms with a
    commit of 210 ms are 0.0105 ms a record. A batch has other fixed costs, so smaller ones take longer than this says.
    """

    records: int
    batch_ms: int
    commit_ms: int

    @classmethod
    def of(cls, status: StreamStatus | None) -> BatchTime | None:
        """Return the time of the last batch; None where it is not known, or the batch was too small to tell."""
        if status is None or status.batch_duration_ms is None or status.commit_duration_ms is None:
            return None
        if status.batch_records < _RECORDS_THAT_TELL or status.batch_duration_ms <= status.commit_duration_ms:
            return None
        return cls(records=status.batch_records, batch_ms=status.batch_duration_ms, commit_ms=status.commit_duration_ms)

    @property
    def ms_per_record(self) -> float:
        return (self.batch_ms - self.commit_ms) / self.records

    @property
    def most_per_s(self) -> float:
        """Records a second beyond which no batch is large enough to keep up: 0.0105 ms a record: 95,238/s."""
        return 1_000 / self.ms_per_record

    def shortest_ms(self, per_s: float) -> int | None:
        """The shortest batches that keep up with ``per_s`` records a second; None where none do.

        One that spans T ms has per_s x T / 1,000 records and takes commit + records x ms a record, at most T: so T is
        at least commit / (1 - per_s / most_per_s). 210 ms, half of the most: 420 ms.
        """
        if per_s >= self.most_per_s:
            return None
        return math.ceil(self.commit_ms / (1 - per_s / self.most_per_s))

    def records_within(self, target_ms: int) -> int:
        """How many records a batch of ``target_ms`` has: (target - commit) / ms a record."""
        return max(int((target_ms - self.commit_ms) / self.ms_per_record), 0)

    def caught_up_s(self, per_s: float, down_s: float) -> float | None:
        """How long it takes to read what came in ``down_s``, and what comes meanwhile; None: it never catches up.

        per_s x down / (most_per_s - per_s): at half of the most as long as it stood still.
        """
        return None if per_s >= self.most_per_s else per_s * down_s / (self.most_per_s - per_s)


@dataclass(frozen=True, kw_only=True)
class Report:
    """Estimate of a stream, and what was measured of it: None where it has not run, or nothing was published.

    ``status`` is the last word of its driver. A batch is one Kafka transaction and one append to each table.
    """

    topology: Topology
    given: Workload
    operators: Sequence[OperatorEstimate]
    plan: AggregationPlan | None
    measured: Measured | None = None
    status: StreamStatus | None = None
    benchmark: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, topology: Topology, given: Workload, **measured: Any) -> Report:
        """The estimate of ``topology``, beside what was ``measured``."""
        operators = operator_estimates(topology, given)
        return cls(topology=topology, given=given, operators=operators, plan=plan_of(topology), **measured)

    @property
    def states(self) -> list[StateEstimate]:
        """Every state of every operator."""
        return [state for operator in self.operators for state in operator.states]

    @property
    def batches_per_s(self) -> float:
        return 1_000 / self.given.trigger_ms

    @property
    def records_per_s(self) -> float:
        """Records a second of all source topics together, as assumed."""
        return sum(self.given.rate_of(source.topic.name) for source in self.topology.sources)

    @property
    def emitted(self) -> float:
        """The rows of a batch to all sinks."""
        per_s = sum(one.rows_per_s for one in self.operators if isinstance(one.node, Sink | Through))
        return per_s / self.batches_per_s

    @property
    def changed(self) -> float:
        """The rows that a batch appends to the state table."""
        return sum(state.kept.changed for state in self.states)

    @property
    def appended_a_day(self) -> float:
        """How many rows are appended to the state table; for how long they stay says ``retained``."""
        return self.changed * self.batches_per_s * SECONDS_A_DAY

    @property
    def markers(self) -> float:
        """A marker in each partition that the transaction wrote to, one for offsets, one for the position.

        Source: Kafka's KIP-98. 84 rows over 4 partitions: 6 at most; 0.02 rows a batch: 2.02.
        """
        return min(self.emitted, sum(written.topic.partitions for written in self.topology.written)) + 2

    @property
    def retained(self) -> list[Retained]:
        """The tables that grow.

        The state of a graph is not among them: its table stays in proportion to the state. Late and rejected records
        are not known beforehand.
        """
        kept_ms = self.topology.retention_ms
        days = None if kept_ms is None else kept_ms / (SECONDS_A_DAY * 1_000)
        leaving = {one.node: one.rows_per_s for one in self.operators}
        found = [
            Retained(
                table=f"outputs/{node.table}",
                rows_a_day=leaving[node] * SECONDS_A_DAY,
                days=None if ageing(node) is None else days,
            )
            for node in self.topology.written
        ]
        if self.plan is not None:
            found.append(Retained(table="state", rows_a_day=self.appended_a_day, days=days))
        return [*found, Retained(table="ledger", rows_a_day=self.batches_per_s * SECONDS_A_DAY, days=None)]

    def held(self, state: StateEstimate) -> Held | None:
        """Return what the stream really holds of ``state``."""
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
    def restart_rows(self) -> float | None:
        """The rows that a restart reads back: the partials of open windows.

        None the general way, which reads the whole state table: that depends on how long the stream has run.
        """
        if self.plan is None:
            return None
        span_ms = self.plan.windows.delay_ms + self.given.late_by_ms
        return self.changed * (1 + self.batches_per_s * span_ms / 1_000)

    @property
    def restart_s(self) -> float | None:
        """How long a restart takes to read back what it needs: its rows over the rate at which they were read just now.

        Source: recovery time = records to replay / replay rate, as of any changelog.
        """
        per_s = None if self.measured is None else self.measured.rows_read_per_s
        if self.measured is None or per_s is None:
            return None
        return (self.measured.table.rows if self.restart_rows is None else self.restart_rows) / per_s
