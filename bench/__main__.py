"""``make bench``: measure, print the table, write JSON, charts and a page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bench.cluster import cluster
from bench.contenders import build_kafka_streams, recount_of
from bench.page import write_page
from bench.plan import Plan, full
from bench.plan import quick as quick_plan
from bench.quix_environment import build_quix_streams
from bench.report import Place
from bench.results import Results
from bench.running import Bench
from bench.session import Session
from bench.table import tables
from recount.runtime.errors import Terminal


class Part(StrEnum):
    """A part of the benchmark: the method of ``Session`` that measures it."""

    THROUGHPUT = "throughput"
    LATENCY = "latency"
    RECOVERY = "recovery"
    AUDIT = "audit"


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Half an hour, not five quarters of one.")] = False,
    publish: Annotated[bool, typer.Option("--publish", help="Write the page and charts to docs/.")] = False,
    part: Annotated[list[Part] | None, typer.Option(help="Measure only this; may be repeated.")] = None,
    job: Annotated[list[str] | None, typer.Option(help="Only this job and its audit; may be repeated.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="How often each contender runs.")] = 3,
    records: Annotated[int, typer.Option(min=0, help="Records of the throughput topics (0: as planned).")] = 0,
    against: Annotated[
        Path | None, typer.Option(help="Only Recount beside the Recount of this checkout: jobs and audits.")
    ] = None,
    earlier: Annotated[
        Path | None, typer.Option(help="Show this results.json, with nothing measured anew but what --part names.")
    ] = None,
) -> None:
    """Run Recount beside Kafka Streams, plain Structured Streaming and Quix Streams on this machine."""
    place = Place.new()
    plan = quick_plan(repeats) if quick else full(repeats)
    if against:
        plan, part = plan.against(recount_of(against.resolve()), repeats), part or [Part.THROUGHPUT, Part.AUDIT]
    chosen = [scenario for scenario in plan.scenarios if not job or scenario.job.name in job]
    audited = [(one, flow) for one, flow in plan.audited_jobs if not job or one.name in job]
    plan = replace(
        plan,
        scenarios=chosen,
        audited_jobs=audited,
        records=records or plan.records,
        other_records=records or plan.other_records,
    )
    results = Results.read(earlier) if earlier else None
    if part or results is None:
        measured = measure(plan, part or list(Part), place)
        results = results.with_anew(measured, part or ()) if results else measured
    for table in tables(results):
        place.console.print(table.rich())
    written = write_page(results, place.project.root / "docs" if publish else place.output)
    place.console.print(f"written: {written}")
    if results.failures:
        sys.exit("failed: " + "; ".join(results.failures))


def measure(plan: Plan, parts: Sequence[Part], place: Place) -> Results:
    """Measure ``parts`` of ``plan``; results so far lie in the place's ``results.json``, logs in its ``run-*``."""
    build_kafka_streams(place.project)
    missing = []
    if any(contender.engine == "quix-streams" for scenario in plan.scenarios for contender in scenario.contenders):
        try:
            build_quix_streams(place.project)
        except Terminal as error:
            plan, missing = plan.without("quix-streams"), [str(error)]
    with cluster(place.folder / "home", place.project) as broker:
        bench = Bench(project=place.project, cluster=broker, folder=place.folder, max_offsets=plan.max_offsets)
        session = Session(bench, plan, place.tell, lambda results: results.write(place.output / "results.json"))
        session.results.failures.extend(missing)
        for part in parts:
            getattr(session, part)()
    return session.results


if __name__ == "__main__":
    typer.run(main)
