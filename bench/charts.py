"""The results as charts, in SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.contenders import RECOUNT
from bench.results import Latency, Results, Summary, summaries

_OURS, _THEIRS = "#1b7f5c", "#9aa5b1"


def draw(results: Results, folder: Path) -> dict[str, Path]:
    """Draw what there is into ``folder``; the files by the names of the tables that they belong to."""
    drawn = {}
    for (job, flow), group in summaries(results.throughput).items():
        drawn[f"{job}-{flow}"] = folder / f"{job}-{flow}.svg"
        _rates(group, drawn[f"{job}-{flow}"])
    if results.latency:
        drawn["latency"] = folder / "latency.svg"
        _latencies(results.latency, drawn["latency"])
    return drawn


def _rates(group: Sequence[Summary], path: Path) -> None:
    """A bar a contender, with the span of its repeats."""
    medians = [each.records_per_s / 1_000 for each in group]
    spreads = [each.spread for each in group]
    below = [median - slowest / 1_000 for median, (slowest, _) in zip(medians, spreads, strict=True)]
    above = [fastest / 1_000 - median for median, (_, fastest) in zip(medians, spreads, strict=True)]
    _bars([each.contender for each in group], medians, [below, above], "thousand records/s", path)


def _latencies(measured: Sequence[Latency], path: Path) -> None:
    """A bar a contender up to the median, with a line up to the 99th percentile."""
    medians = [each.p50_ms for each in measured]
    above = [each.p99_ms - each.p50_ms for each in measured]
    names = [each.contender for each in measured]
    _bars(names, medians, [[0.0] * len(medians), above], "ms from produce to visible: median, line to p99", path)


def _bars(
    names: Sequence[str], values: Sequence[float], spread: Sequence[Sequence[float]], unit: str, path: Path
) -> None:
    # The same figures give the same file, so that a new run changes only what it measured.
    with mpl.rc_context({"svg.hashsalt": "recount", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8.5, 0.6 + 0.45 * len(names)), layout="constrained")
        axes = figure.subplots()
        colours = [_OURS if name == RECOUNT.name else _THEIRS for name in names]
        axes.barh(list(names), list(values), xerr=spread, color=colours, ecolor="#3d4852", capsize=3)
        axes.invert_yaxis()
        axes.set_xlabel(unit)
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, format="svg", metadata={"Date": None})
