"""``recount estimate``: how much a topology keeps and costs, beside what its stream measures."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from recount.core.errors import RecountError, Terminal
from recount.core.registry import DEFAULT_MODULES, declared
from recount.core.settings import Settings
from recount.kafka.connection import Connection
from recount.kafka.status import StatusBoard, StreamStatus, UnreadableStatus
from recount.printed_tables import print_whole
from recount.spark.estimates.benchmark import RESULTS, Benchmark
from recount.spark.estimates.document import document
from recount.spark.estimates.measured import measured
from recount.spark.estimates.page import page
from recount.spark.estimates.report import Report
from recount.spark.estimates.workload import workload

_OF_ONE = "for one alone NAME=NUMBER; can be repeated"


def estimate(
    topology: Annotated[str, typer.Argument(help="The name of the topology.")],
    rate: Annotated[list[str], typer.Option(help=f"Records a second of a source topic; {_OF_ONE}.")] = [],  # noqa: B006
    keys: Annotated[list[str], typer.Option(help=f"How many different keys, or 'unique'; {_OF_ONE}.")] = [],  # noqa: B006
    record_bytes: Annotated[float, typer.Option(help="Bytes of a record's value.")] = 100.0,
    trigger: Annotated[str, typer.Option(help="Time that a batch spans; longer while a stream catches up.")] = "1 s",
    late_by: Annotated[str, typer.Option(help="How far the slowest partition is behind the fastest.")] = "0 s",
    stream: Annotated[str | None, typer.Option(help="The stream to measure. Default: of the same name.")] = None,
    data: Annotated[str | None, typer.Option(help="Root of its Delta tables. Default: RECOUNT_DATA.")] = None,
    benchmark: Annotated[Path | None, typer.Option(help=f"Benchmark results. Default: {RESULTS}.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Estimate state, commits and restarts of a topology, and show what its stream measures beside it.

    No broker has to run. Rates are of event time. A figure that nobody has measured is called that.
    """
    declaration = declared(os.environ.get("RECOUNT_TOPOLOGIES", DEFAULT_MODULES)).topology(topology)
    given = workload(declaration, rate=rate, keys=keys, record_bytes=record_bytes, trigger=trigger, late_by=late_by)
    settings = Settings.from_environment(os.environ) if "RECOUNT_PROFILE" in os.environ else None
    root = data or (settings.data if settings else None)
    name = stream or topology
    report = Report.of(
        declaration,
        given,
        measured=measured(replace(declaration, name=name), root) if root else None,
        status=_status(settings, name) if settings and not data else None,
        benchmark=_benchmark(benchmark),
    )
    if (stream or data) and report.measured is None:
        raise _never_ran(name, root)
    if as_json:
        typer.echo(json.dumps(document(report), indent=1))
    else:
        print_whole(*page(report))


def _never_ran(name: str, root: str | None) -> Terminal:
    return Terminal(
        "the stream to measure has never committed a batch",
        given=f"{name} below {root}",
        expected="a stream that runs or has run there",
        remedy="check --stream and --data, or leave them out for the estimate alone",
    )


def _status(settings: Settings, name: str) -> StreamStatus | None:
    """The driver's last word; where it cannot be had that is said, and the tables are measured without it."""
    board = StatusBoard(Connection.of(settings))
    try:
        return board.of(name)
    except UnreadableStatus:
        raise
    except RecountError as error:
        typer.echo(f"no status of the driver: {error}", err=True)
        return None
    finally:
        board.close()


def _benchmark(path: Path | None) -> Benchmark | None:
    if path is not None and not path.exists():
        raise Terminal(
            "no benchmark results",
            given=str(path),
            expected="a file that `make bench` wrote",
            remedy="check --benchmark, or leave it out",
        )
    return Benchmark.read(path or RESULTS)
