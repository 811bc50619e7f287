"""What the published benchmark run says of commits and restarts; a figure comes with the name of what was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from recount.core.errors import Terminal

RESULTS = Path("docs") / "performance" / "results.json"
_ENGINE, _PLAIN = "Recount", "Recount with a plain producer"


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
