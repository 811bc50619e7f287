"""``recount panels``: grace advice and the answers of other engines, as files that a stream's page shows."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from recount.advise.grace_advice import advice
from recount.advise.grace_command import HEADS, cells_of, late_of, recommendation_of
from recount.advise.lens_answer import Figures
from recount.advise.lens_command import RESULT_HEADS, engine_name, heading, lens_of, result_cells, told_counts
from recount.advise.lens_log import Modelled
from recount.advise.workload import workload
from recount.audit.certificate.certificate_files import certificates_in
from recount.audit.certificate.issuing import certificates_of, write_whole
from recount.declare.registry import declared
from recount.declare.topology import Topology
from recount.runtime.console import run_job
from recount.runtime.errors import RecountError
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms
from recount.tables.places import Tables

MOST_RECORDS = 2_000_000
"""The lens of a night reads no more: of sessions it would read the log from its beginning."""
Panel = Mapping[str, Sequence[Any]]


def write_panels(settings: Settings, topology: Topology) -> dict[str, Panel]:
    """Write both files of ``topology``, as of now and about the interval of its newest audit; returns what they hold.

    What cannot be found out is a sentence in the file: no audit yet, no model of the topology, a log that has expired.
    """
    found = {"grace": _told(lambda: _grace(settings, topology)), "lens": _told(lambda: _lens(settings, topology))}
    for kind, panel in found.items():
        file = Path(settings.reports) / kind / f"{topology.name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(panel, ensure_ascii=False))
    return found


def of_advice(found: Figures) -> Panel:
    """A row for each longer grace of each operator that judges records by one."""
    said = [f"Not ready: {found['not_ready']}."] if found["not_ready"] else []
    titled = [(" and ".join(one["titles"]), one) for one in found["operators"]]
    said += [f"{title}: {late_of(one)}; {recommendation_of(one)}." for title, one in titled]
    rows = [[title, *cells_of(step, one, found)] for title, one in titled for step in one["steps"]]
    return {
        "said": said or ["No operator judges records by a grace."],
        "columns": ["operator", *HEADS] if rows else [],
        "rows": rows,
    }


def of_answer(found: Figures) -> Panel:
    """The counts of each engine in a sentence; a row for each of the first results that it lacks or has otherwise."""
    named = [(engine_name(one), one) for one in found["engines"]]
    said = [*heading(found), *(f"{name}: {told_counts(one)}." for name, one in named)]
    rows = [[name, *cells] for name, one in named for cells in result_cells(one)]
    return {"said": said, "columns": ["engine", *RESULT_HEADS] if rows else [], "rows": rows}


def _grace(settings: Settings, topology: Topology) -> Panel:
    return of_advice(advice(Tables(settings.data), topology, workload(topology), clock_ms()))


def _lens(settings: Settings, topology: Topology) -> Panel:
    Modelled.of(topology)
    certificates = certificates_in(certificates_of(settings.reports, topology.name))
    newest = max(certificates, key=lambda one: int(one["sequence"]), default=None)
    if newest is None:
        return _said("Not audited yet: the newest audit says about which night other engines are asked.")
    start_ms, end_ms = (newest["covers"][bound]["batch_timestamp_ms"] for bound in ("from", "to"))
    answer = lens_of(settings, topology, start_ms=start_ms, end_ms=end_ms + 1, most_records=MOST_RECORDS)
    return of_answer(answer.said)


def _told(make: Callable[[], Panel]) -> Panel:
    try:
        return make()
    except RecountError as reason:
        return _said(str(reason))


def _said(sentence: str) -> Panel:
    return {"said": [sentence], "columns": [], "rows": []}


def panels(
    streams: Annotated[list[str] | None, typer.Argument(help="Names of streams, as declared. Default: all.")] = None,
) -> None:
    """Write what the page of each stream shows of a longer grace and of what other engines would have dropped.

    About the interval of the newest audit; the task ``panels`` of the nightly DAGs calls it. What is not known about a
    stream is a sentence on its page: the exit code is 0.
    """
    settings = Settings.from_environment(os.environ).acting_as("audit")
    declarations = declared(settings.topologies)
    for topology in [declarations.topology(name) for name in streams or declarations.topologies]:
        for kind, panel in write_panels(settings, topology).items():
            typer.echo(f"{topology.name}: {kind}: {' '.join(map(str, panel['said']))}")


if __name__ == "__main__":
    # the task of a nightly DAG: nobody waits for it, and somebody does for the backfill that may run beside it
    os.nice(10)
    run_job("panels", panels)
