"""``recount estimate``: how much a topology keeps and costs, beside what its stream measures."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from recount.core.errors import RecountError, Terminal
from recount.core.registry import DEFAULT_MODULES, declared
from recount.core.settings import Settings
from recount.kafka.connection import Connection
from recount.kafka.status import StatusBoard, StreamStatus, UnreadableStatus
from recount.printed_tables import print_whole
from recount.spark.estimates.benchmark import RESULTS, Benchmark
from recount.spark.estimates.measured import measured
from recount.spark.estimates.operators import StateEstimate
from recount.spark.estimates.page import page
from recount.spark.estimates.report import Report
from recount.spark.estimates.workload import workload

_OF_ONE = "for one alone NAME=NUMBER; can be repeated"
VERSION = 1


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


def document(report: Report) -> dict[str, Any]:
    """All figures of ``report``; None is what was not measured, or has no number."""
    batch, found = report.batch, report.measured
    time, target_ms = report.batch_time, report.target_ms
    return {
        "version": VERSION,
        "stream": report.stream,
        "assumed": report.given.document,
        "operators": [
            {
                "number": operator.number,
                "operator": operator.title,
                "rows_per_s": operator.rows_per_s,
                "cost": operator.cost or None,
                "states": [_state(report, state) for state in operator.states],
            }
            for operator in report.operators
        ],
        "batch": {
            "per_s": batch.per_s,
            "records": batch.records,
            "emitted": batch.emitted,
            "state_rows_changed": batch.changed,
            "state_rows_appended_a_day": batch.appended_a_day,
        },
        "exactly_once": {
            "transactions_per_s": report.exactly_once.per_s,
            "markers_per_transaction": report.exactly_once.markers,
        },
        "batch_time": None if time is None else {**asdict(time), "most_records_per_s": time.most_per_s},
        "recommended": {
            "target_batch_ms": target_ms,
            "records": None if time is None or target_ms is None else time.records_within(target_ms),
        },
        "retained": [{**asdict(one), "rows": one.rows} for one in report.retained],
        "restart": {
            "rows": batch.restart_rows,
            "seconds": report.restart_s,
            "catching_up_s_a_minute": None if time is None else time.caught_up_s(report.records_per_s, 60),
        },
        "measured": None if found is None else asdict(found),
        "status": None if report.status is None else asdict(report.status),
        "benchmark": None if report.benchmark is None else asdict(report.benchmark),
    }


def _state(report: Report, state: StateEstimate) -> dict[str, Any]:
    held = report.held(state)
    return {
        "state": state.title,
        "rows": state.kept.rows,
        "bytes": state.bytes,
        "rows_for_ever_per_s": state.kept.grows_per_s,
        "bytes_for_ever_a_day": state.bytes_a_day,
        "formula": state.kept.formula,
        "measured": None if held is None else asdict(held),
    }
