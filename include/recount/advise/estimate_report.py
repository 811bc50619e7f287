"""All figures of a stream as one document: its estimate, what was measured of it, and the published benchmark run.

A figure of the benchmark comes with the name of what was measured.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self

from recount.advise.measured import Measured
from recount.advise.state_estimate import StateEstimate, operator_estimates
from recount.advise.workload import SECONDS_A_DAY, Workload
from recount.declare.operators.nodes import Sink
from recount.declare.operators.stateless import Through
from recount.declare.topology import Topology
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
        raise Terminal.of("benchmark-results-unreadable", given=f"{path}: {error!r}") from error


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
class BatchTime:
    """A batch of ``records`` took ``batch_ms``, of which its commit to Kafka and Delta took ``commit_ms``.

    The commit counts as what a batch takes whatever is in it, the rest as the records': 40,000 records in 630 ms with a
    commit of 210 ms are 0.0105 ms a record. A batch has other fixed costs, so smaller ones take longer than this says.
    """

    records: int
    batch_ms: int
    commit_ms: int

    @classmethod
    def of(cls, status: StreamStatus | None) -> Self | None:
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


VERSION = 1


def document(
    topology: Topology,
    given: Workload,
    *,
    measured: Measured | None = None,
    status: StreamStatus | None = None,
    benchmark: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """The estimate of ``topology`` beside what was ``measured``; None is what was not, or has no number.

    ``status`` is the last word of its driver. A batch is one Kafka transaction and one append to each table.

    - A transaction has a marker in each partition that it wrote to, one for offsets, one for the position (Kafka's
      KIP-98): 84 rows over 4 partitions: 6 at most; 0.02 rows a batch: 2.02.
    - A restart takes its rows over the rate at which they were read just now: recovery time = records to replay /
      replay rate, as of any changelog. It reads the state table, and how large that is depends on how long the
      stream has run.
    - Retained are the tables that grow. The state is not among them: its table stays in proportion to what is held.
      Late and rejected records are not known beforehand.
    """
    operators = operator_estimates(topology, given)
    per_s, records_per_s = 1_000 / given.trigger_ms, sum(given.rate_of(one.topic.name) for one in topology.sources)
    leaving = {one.node: one.rows_per_s for one in operators}
    emitted = sum(rate for node, rate in leaving.items() if isinstance(node, Sink | Through)) / per_s
    changed = sum(state.kept.changed for one in operators for state in one.states)
    days = None if topology.retention_ms is None else topology.retention_ms / (SECONDS_A_DAY * 1_000)
    grows = [(f"outputs/{one.table}", leaving[one], ageing(one) is not None) for one in topology.written]
    time, target_ms, read_per_s = BatchTime.of(status), None, measured and measured.rows_read_per_s
    if time is not None and (shortest_ms := time.shortest_ms(records_per_s)) is not None:
        target_ms = max(shortest_ms, given.trigger_ms)
    return {
        "version": VERSION,
        "stream": topology.name,
        "assumed": given.document,
        "operators": [
            {
                "number": one.number,
                "operator": one.title,
                "rows_per_s": one.rows_per_s,
                "cost": one.cost or None,
                "states": [_state(state, measured) for state in one.states],
            }
            for one in operators
        ],
        "batch": {
            "per_s": per_s,
            "records": records_per_s / per_s,
            "emitted": emitted,
            "state_rows_changed": changed,
            "state_rows_appended_a_day": changed * per_s * SECONDS_A_DAY,
        },
        "exactly_once": {
            "transactions_per_s": per_s,
            "markers_per_transaction": min(emitted, sum(one.topic.partitions for one in topology.written)) + 2,
        },
        "batch_time": None if time is None else {**asdict(time), "most_records_per_s": time.most_per_s},
        "recommended": {
            "target_batch_ms": target_ms,
            "records": None if time is None or target_ms is None else time.records_within(target_ms),
        },
        "retained": [
            _retained(table, rate * SECONDS_A_DAY, days if ages else None)
            for table, rate, ages in [*grows, ("ledger", per_s, False)]
        ],
        "restart": {
            "seconds": measured and read_per_s and measured.table.rows / read_per_s,
            "catching_up_s_a_minute": None if time is None else time.caught_up_s(records_per_s, 60),
        },
        "measured": None if measured is None else asdict(measured),
        "status": None if status is None else asdict(status),
        "benchmark": benchmark or {},
    }


def _state(state: StateEstimate, measured: Measured | None) -> dict[str, Any]:
    held = None if measured is None else measured.held.get(state.name)
    return {
        "state": state.title,
        "rows": state.kept.rows,
        "bytes": state.bytes,
        "rows_for_ever_per_s": state.kept.grows_per_s,
        "bytes_for_ever_a_day": state.bytes_a_day,
        "formula": state.kept.formula,
        "measured": None if held is None else asdict(held),
    }


def _retained(table: str, rows_a_day: float, days: float | None) -> dict[str, Any]:
    """Kept for ``days``; None: for ever."""
    rows = None if days is None else rows_a_day * days
    return {"table": table, "rows_a_day": rows_a_day, "days": days, "rows": rows}
