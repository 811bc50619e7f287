"""What the published benchmark run says of commits and restarts; a figure comes with the name of what was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recount.core.errors import Terminal

RESULTS = Path("docs") / "performance" / "results.json"
_ENGINE = "Recount"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A measurement in words, and what it is of."""

    said: str
    of: str


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """The figures of Recount in one run of ``make bench``; None is what the run did not measure."""

    throughput: Figure | None = None
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
        rates = [row for row in run["throughput"] if row["contender"] == _ENGINE]
        latencies = [row for row in run["latency"] if row["contender"] == _ENGINE]
        restarts = [row for row in run["recovery"] if row["contender"] == _ENGINE]
        return cls(
            throughput=_throughput(rates[0]) if rates else None,
            latency=_latency(latencies[0]) if latencies else None,
            recovery=tuple(
                Figure(said=f"{row['seconds']:.1f} s", of=f"restart with {row['keys']:,} keys") for row in restarts
            ),
        )


def _throughput(row: Mapping[str, Any]) -> Figure:
    return Figure(
        said=f"{row['records'] / row['seconds']:,.0f} records/s", of=f"{row['job']}, {row['records']:,} records"
    )


def _latency(row: Mapping[str, Any]) -> Figure:
    return Figure(
        said=f"p50 {row['p50_ms']:,.0f} ms, p99 {row['p99_ms']:,.0f} ms",
        of=f"produce to visible, {row['job']}, {row['per_second']:,} records/s",
    )
