"""Estimate and measurement of one stream together, with commits and restarts from the published benchmark run.

A figure of the benchmark comes with the name of what was measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from recount.advise.estimates.measured import Held, Measured
from recount.advise.estimates.state_estimate import OperatorEstimate, StateEstimate, operator_estimates, rates
from recount.advise.estimates.workload import SECONDS_A_DAY, Workload
from recount.declare.operators.nodes import Sink
from recount.declare.operators.stateless import Through
from recount.declare.topology import Topology
from recount.engine.stage.partials import plan_of
from recount.kafka.status import StreamStatus
from recount.runtime.errors import Terminal
from recount.tables.places import ageing

RESULTS = Path("docs") / "performance" / "results.json"
_ENGINE, _PLAIN = "Recount", "Recount with a plain producer"
_OF_OFFSETS, _OF_POSITION = 1, 1
"""A transaction also commits the offsets of its group, and writes the stream's position."""
_DAY_MS = SECONDS_A_DAY * 1_000
_RECORDS_THAT_TELL = 1_000
"""Fewer records take as long as a batch without any."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A measurement in words, and what it is of."""

    said: str
    of: str


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """The figures of Recount in a run of ``make bench``, medians of its repetitions; None: it did not measure that."""

    throughput: Figure | None = None
    exactly_once: Figure | None = None
    latency: Figure | None = None
    recovery: tuple[Figure, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Benchmark | None:
        """The run in ``path``; None where there is no such file. Raises ``Terminal`` for one that is no such run."""
        if not path.exists():
            return None
        try:
            return cls._of(json.loads(path.read_text()))
        except (ValueError, KeyError, TypeError) as error:
            raise Terminal(
                "benchmark results that cannot be read",
                given=f"{path}: {error!r}",
                expected="what `make bench` writes",
                remedy="run make bench, or remove the file",
            ) from error

    @classmethod
    def _of(cls, run: Mapping[str, Any]) -> Benchmark:
        first = [row for row in run["throughput"] if row["contender"] == _ENGINE][:1]
        latencies = [row for row in run["latency"] if row["contender"] == _ENGINE]
        restarts: dict[int, list[float]] = {}
        for row in run["recovery"]:
            if row["contender"] == _ENGINE:
                restarts.setdefault(row["keys"], []).append(row["seconds"])
        return cls(
            throughput=_throughput(run, first[0]) if first else None,
            exactly_once=_exactly_once(run),
            latency=_latency(latencies[0]) if latencies else None,
            recovery=tuple(
                Figure(said=f"{median(seconds):.1f} s", of=f"restart with {keys:,} keys")
                for keys, seconds in restarts.items()
            ),
        )


def _per_s(run: Mapping[str, Any], contender: str, like: Mapping[str, Any]) -> list[float]:
    """The records a second of each run of ``contender`` at the work of the row ``like``."""
    work = ("job", "flow", "records")
    rows = [row for row in run["throughput"] if row["contender"] == contender]
    return [row["records"] / row["seconds"] for row in rows if all(row.get(one) == like.get(one) for one in work)]


def _throughput(run: Mapping[str, Any], row: Mapping[str, Any]) -> Figure:
    return Figure(
        said=f"{median(_per_s(run, _ENGINE, row)):,.0f} records/s", of=f"{row['job']}, {row['records']:,} records"
    )


def _exactly_once(run: Mapping[str, Any]) -> Figure | None:
    """The medians with transactions and with a plain producer at the same work, and how far single runs lie apart."""
    plain = [row for row in run["throughput"] if row["contender"] == _PLAIN]
    if not plain:
        return None
    rates = [_per_s(run, contender, plain[0]) for contender in (_ENGINE, _PLAIN)]
    if not rates[0]:
        return None
    with_transactions, without = map(median, rates)
    every = [rate for of_one in rates for rate in of_one]
    return Figure(
        said=f"{with_transactions:,.0f} records/s, with a plain producer {without:,.0f}",
        of=f"{plain[0]['job']}, {plain[0]['records']:,} records, single runs {min(every):,.0f} to {max(every):,.0f}",
    )


def _latency(row: Mapping[str, Any]) -> Figure:
    return Figure(
        said=f"p50 {row['p50_ms']:,.0f} ms, p99 {row['p99_ms']:,.0f} ms",
        of=f"produce to visible, {row['job']}, {row['per_second']:,} records/s",
    )


@dataclass(frozen=True, kw_only=True)
class Report:
    """Estimate of a stream, and what was measured of it: None where it has not run, or nothing was published.

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
        """Records a second of all source topics together, as assumed."""
        return self.batch.records * self.batch.per_s

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
    def restart_s(self) -> float | None:
        """How long a restart takes to read back what it needs: its rows over the rate at which they were read just now.

        Source: recovery time = records to replay / replay rate, as of any changelog.
        """
        per_s = None if self.measured is None else self.measured.rows_read_per_s
        if self.measured is None or per_s is None:
            return None
        rows = self.batch.restart_rows
        return (self.measured.table.rows if rows is None else rows) / per_s


@dataclass(frozen=True, kw_only=True)
class ExactlyOnce:
    """Cost of a batch: one transaction, ``markers`` at most, a record with the position; none of these at least once.

    ``partitions`` are those of all topics that are written. ``per_s`` batches come a second.
    """

    per_s: float
    emitted: float
    partitions: int

    @classmethod
    def of(cls, topology: Topology, batch: BatchEstimate) -> ExactlyOnce:
        return cls(
            per_s=batch.per_s,
            emitted=batch.emitted,
            partitions=sum(written.topic.partitions for written in topology.written),
        )

    @property
    def markers(self) -> float:
        """A marker in each partition that the transaction wrote to, one for offsets, one for the position.

        Source: Kafka's KIP-98. 84 rows over 4 partitions: 6 at most; 0.02 rows a batch: 2.02.
        """
        return min(self.emitted, self.partitions) + _OF_OFFSETS + _OF_POSITION


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
