"""What was measured: plain values, medians over the repeats, ratios to a peer of the same run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """One run to the end of a topic. ``counted`` records are in the visible results; ``on_time`` should be.

    ``repeated`` results came although there was one of their key and window, in a job that sends each once.
    ``others_cores`` is what everything but the contender and the broker used of the machine meanwhile, in cores.
    """

    job: str
    flow: str
    contender: str
    records: int
    seconds: float
    counted: int
    on_time: int
    cpu_s: float
    broker_cpu_s: float
    peak_memory_bytes: int
    state_bytes: int
    kafka_bytes: int
    others_cores: float
    repeated: int = 0

    @property
    def records_per_s(self) -> float:
        """From the first record processed to the last commit."""
        return self.records / self.seconds

    @property
    def wrongly_dropped(self) -> int:
        """Records that are on time by their own partition, and missing; an engine with a longer grace may keep more."""
        return max(0, self.on_time - self.counted)

    @property
    def cpu_s_per_million(self) -> float:
        """Processor seconds of the contender's processes for a million records; the broker's are apart."""
        return self.cpu_s * 1e6 / self.records


@dataclass(frozen=True, kw_only=True)
class Latency:
    """From produce to visible for a reader with ``read_committed``, at a fixed rate; ``lost`` never became visible."""

    job: str
    contender: str
    per_second: int
    records: int
    p50_ms: float
    p99_ms: float
    lost: int


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """From the restart after kill -9 to the first new result, with ``keys`` keys in open windows."""

    contender: str
    keys: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class AuditCost:
    """The nightly audit of a whole topic, or the plain batch query it is compared with; ``cpu_s`` of its processes.

    ``contender`` is whose audit it is.
    """

    what: str
    records: int
    seconds: float
    cpu_s: float
    peak_memory_bytes: int
    contender: str = "Recount"
    job: str = "revenue-by-region"


@dataclass(frozen=True, kw_only=True)
class Results:
    """One run of the benchmark, on which machine and how; ``failures`` says what was not measured."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    throughput: list[Throughput] = field(default_factory=list)
    latency: list[Latency] = field(default_factory=list)
    recovery: list[Recovery] = field(default_factory=list)
    audit: list[AuditCost] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    def with_anew(self, measured: Results, parts: Iterable[str]) -> Results:
        """These results with the ``parts`` of another run in place of their own."""
        anew: dict[str, Any] = {part: getattr(measured, part) for part in parts}
        return replace(self, **anew, failures=[*self.failures, *measured.failures])

    @classmethod
    def read(cls, path: Path) -> Results:
        """What ``write`` wrote."""
        document = json.loads(path.read_text())
        return cls(
            machine=document["machine"],
            settings=document["settings"],
            throughput=[Throughput(**row) for row in document["throughput"]],
            latency=[Latency(**row) for row in document["latency"]],
            recovery=[Recovery(**row) for row in document["recovery"]],
            audit=[AuditCost(**row) for row in document.get("audit", ())],
            failures=document["failures"],
        )


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The repeats of one contender on one job and flow."""

    contender: str
    repeats: Sequence[Throughput]

    def median(self, measure: Callable[[Throughput], float]) -> float:
        """The median of ``measure`` over the repeats."""
        return statistics.median(map(measure, self.repeats))

    @property
    def records_per_s(self) -> float:
        """The median rate."""
        return self.median(lambda run: run.records_per_s)

    @property
    def spread(self) -> tuple[float, float]:
        """The slowest and the fastest rate."""
        rates = [run.records_per_s for run in self.repeats]
        return min(rates), max(rates)


def summaries(runs: Iterable[Throughput]) -> dict[tuple[str, str], list[Summary]]:
    """By job and flow, the contenders in the order in which they first ran."""
    grouped: dict[tuple[str, str], dict[str, list[Throughput]]] = {}
    for run in runs:
        grouped.setdefault((run.job, run.flow), {}).setdefault(run.contender, []).append(run)
    return {
        place: [Summary(contender=name, repeats=repeats) for name, repeats in contenders.items()]
        for place, contenders in grouped.items()
    }
