"""``make bench``: measure, print the table, write JSON, charts and a page."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.cluster import cluster
from bench.contenders import build_kafka_streams
from bench.page import write_page
from bench.plan import Plan, full
from bench.plan import quick as quick_plan
from bench.quix_environment import build_quix_streams
from bench.results import Results
from bench.running import Bench
from bench.session import Session
from bench.table import tables
from recount.core.errors import Terminal
from recount.local.home import Home
from recount.local.project import Project

_WIDTH = 190  # of the widest table: a log file should not break it


class Part(StrEnum):
    """A part of the benchmark: the method of ``Session`` that measures it."""

    THROUGHPUT = "throughput"
    LATENCY = "latency"
    RECOVERY = "recovery"
    AUDIT = "audit"


def main(
    quick: Annotated[bool, typer.Option("--quick", help="A quarter of an hour instead of an hour and a half.")] = False,
    publish: Annotated[bool, typer.Option("--publish", help="Write the page and charts to docs/.")] = False,
    part: Annotated[list[Part] | None, typer.Option(help="Measure only this; may be repeated.")] = None,
    job: Annotated[list[str] | None, typer.Option(help="Only the throughput of this job; may be repeated.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="How often each contender runs.")] = 3,
    records: Annotated[int, typer.Option(min=0, help="Records of the throughput topics (0: as planned).")] = 0,
    earlier: Annotated[Path | None, typer.Option(help="Measure nothing: show this results.json.")] = None,
) -> None:
    """Run Recount beside Kafka Streams, plain Structured Streaming and Quix Streams on this machine."""
    # As on Ctrl-C, so that a benchmark that is told to end leaves neither a broker nor a contender behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(log_path=False)
    console.width = max(console.width, _WIDTH)
    project = Project.containing(Path(__file__).parent)
    output = Home.of(project.root).path / "bench"
    output.mkdir(parents=True, exist_ok=True)
    plan = quick_plan(repeats) if quick else full(repeats)
    chosen = [scenario for scenario in plan.scenarios if not job or scenario.job.name in job]
    plan = replace(plan, scenarios=chosen, records=records or plan.records, other_records=records or plan.other_records)
    results = Results.read(earlier) if earlier else measure(plan, part or list(Part), project, output, console)
    for table in tables(results):
        console.print(table.rich())
    console.print(f"written: {write_page(results, project.root / 'docs' if publish else output)}")
    if results.failures:
        sys.exit("failed: " + "; ".join(results.failures))


def measure(plan: Plan, parts: Sequence[Part], project: Project, output: Path, console: Console) -> Results:
    """Measure ``parts`` of ``plan``; results so far lie in ``output/results.json``, logs in ``output/run-*``."""
    build_kafka_streams(project)
    missing = []
    if any(contender.engine == "quix-streams" for scenario in plan.scenarios for contender in scenario.contenders):
        try:
            build_quix_streams(project)
        except Terminal as error:
            plan, missing = plan.without("quix-streams"), [str(error)]
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=output))
    with cluster(folder / "home", project) as broker:
        bench = Bench(project=project, cluster=broker, folder=folder, max_offsets=plan.max_offsets)
        session = Session(bench, plan, console.log, lambda results: results.write(output / "results.json"))
        session.results.failures.extend(missing)
        for part in parts:
            getattr(session, part)()
    return session.results


if __name__ == "__main__":
    typer.run(main)
