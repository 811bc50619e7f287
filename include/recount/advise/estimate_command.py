"""``recount estimate``: how much a topology keeps and costs, beside what its stream measures."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from recount.advise.estimate_report import RESULTS, Report, benchmark_figures
from recount.advise.measured import measured
from recount.advise.state_estimate import OperatorEstimate, StateEstimate
from recount.advise.workload import counted, sized, workload
from recount.declare.registry import DEFAULT_MODULES, declared
from recount.kafka.connection import Connection
from recount.kafka.status import StatusBoard, StreamStatus, UnreadableStatus
from recount.runtime.console import print_whole
from recount.runtime.errors import RecountError, Terminal
from recount.runtime.settings import Settings
from recount.runtime.times import readable, roughly

NOT_MEASURED = "not measured"
Line = tuple[str, str, str]
"""What it is about, the estimate, the measurement."""
_OF_ONE = "for one alone NAME=NUMBER; can be repeated"
VERSION = 1


def page(report: Report) -> Iterator[RenderableType]:
    """The workload, a table of operators, a table of batches and restarts, a table of what is kept."""
    found = report.measured
    measured = "nothing, the stream has not run"
    if found is not None:
        rates = ", ".join(f"{topic} {counted(rate)} records/s" for topic, rate in sorted(found.rates.items()))
        measured = f"medians of its newest {found.batches} batches" + (f"; of event time {rates}" if rates else "")
        measured += "" if report.status is None else f"; its driver is {report.status.state}"
    yield Text(f"stream {report.topology.name}", style="bold")
    yield f"assumed: {report.given}"
    yield f"measured: {measured}"
    tables = {"operator": _operators, "a batch": _batches, "kept in Delta": _retained}
    for title, lines in tables.items():
        table = Table(title, "estimate", "measured", box=None, padding=(0, 2, 0, 0))
        for line in lines(report):
            table.add_row(*line)
        yield table


def _operators(report: Report) -> Iterator[Line]:
    for operator in report.operators:
        yield f"{operator.number}. {operator.title}", f"{counted(operator.rows_per_s)} rows/s leave it", ""
        if operator.cost:
            yield "   join", operator.cost, NOT_MEASURED
            yield "   window", *_partners(report, operator)
        for state in operator.states:
            held = report.held(state)
            found = NOT_MEASURED if held is None else f"{held.rows:,} rows, {sized(held.bytes)}"
            expected = _rows(state.kept.rows, state.bytes, state.bytes_a_day)
            yield f"   {state.title}", f"{expected}\n= {state.kept.formula}", found
    figures = [(state.kept.rows, state.bytes, state.bytes_a_day) for state in report.states]
    rows, size, growth = (sum(figure) for figure in zip(*figures, strict=True)) if figures else (0, 0, 0)
    all_held = NOT_MEASURED
    if report.measured is not None:
        held_by = report.measured.held.values()
        all_held = f"{sum(one.rows for one in held_by):,} rows, {sized(sum(one.bytes for one in held_by))}"
    yield "state in all", _rows(rows, size, growth), all_held


def _rows(rows: float, size: float, growth: float) -> str:
    said = f"{counted(rows)} rows, {sized(size)}"
    return f"{said}\nand for ever {sized(growth)} more a day" if growth else said


def _batches(report: Report) -> Iterator[Line]:
    found, per_s, every = report.measured, report.batches_per_s, readable(report.given.trigger_ms)
    records, emitted = NOT_MEASURED, NOT_MEASURED
    if found is not None:
        interval = "" if found.interval_ms is None else f", every {roughly(found.interval_ms)}"
        records = f"{found.records:,.0f}{interval}"
        emitted = f"{found.emitted:,.0f}; {_on_disk(found.outputs.row_bytes)} in Delta"
    yield "records in", f"{counted(report.records_per_s / per_s)}, every {every}", records
    sent = f"{counted(report.emitted)} in {counted(per_s)} transactions/s"
    yield "rows out, one Kafka transaction", sent, emitted
    yield "state append", *_append(report)
    yield "commit, Kafka and Delta", *_commit(report)
    yield "batch that keeps up", *_target(report)
    yield "exactly once", *_exactly_once(report)
    table = NOT_MEASURED
    if found is not None:
        table = f"now {found.table.rows:,} rows, {sized(found.table.bytes)} in {found.table.files:,} files"
    yield "state table, rows a day", f"{counted(report.appended_a_day)} appended", table
    yield "restart, state read back", *_restart(report)
    yield "restart, catching up", *_catching_up(report)
    for of in ("throughput", "latency", "restart"):
        yield f"benchmark: {of}", "", _published(report, of)


def _published(report: Report, of: str) -> str:
    """Figures of other streams, in the published run of the benchmark."""
    return "\n".join(report.benchmark.get(of, ())) or NOT_MEASURED


def _retained(report: Report) -> Iterator[Line]:
    """Rows a day times days; bytes where a row was measured."""
    found = report.measured
    for one in report.retained:
        of_row = None
        if found is not None and one.table != "ledger":
            of_row = found.table.row_bytes if one.table == "state" else found.outputs.row_bytes
        if one.rows is None:
            a_day = "" if of_row is None else f", {sized(one.rows_a_day * of_row)}"
            kept = f"{counted(one.rows_a_day)} rows a day{a_day}, for ever"
        else:
            size = f"bytes {NOT_MEASURED}" if of_row is None else sized(one.rows * of_row)
            kept = f"{counted(one.rows_a_day)} a day x {one.days:g} days = {counted(one.rows)} rows, {size}"
        yield one.table, kept, ""


def _append(report: Report) -> tuple[str, str]:
    found, expected = report.measured, f"{counted(report.changed)} rows"
    if found is None or found.table.row_bytes is None:
        return f"{expected}, bytes {NOT_MEASURED}", NOT_MEASURED
    expected += f" x {_on_disk(found.table.row_bytes)} = {sized(report.changed * found.table.row_bytes)}"
    took = f", time {NOT_MEASURED}" if found.append_ms is None else f" in {roughly(found.append_ms)}"
    return expected, f"{found.changed:,.0f} rows{took}"


def _commit(report: Report) -> tuple[str, str]:
    """The share of time that commits take: how many a second, times how long one takes."""
    status, given = report.status, report.given
    if status is None or status.commit_duration_ms is None:
        return NOT_MEASURED, NOT_MEASURED
    share = status.commit_duration_ms / given.trigger_ms
    expected = f"{share:.1%} of the time: {roughly(status.commit_duration_ms)} of {readable(given.trigger_ms)}"
    of = "" if status.batch_duration_ms is None else f" of {roughly(status.batch_duration_ms)}"
    return expected, f"{roughly(status.commit_duration_ms)}{of}, last batch"


def _target(report: Report) -> tuple[str, str]:
    time, target_ms = report.batch_time, report.target_ms
    if time is None:
        return NOT_MEASURED, NOT_MEASURED
    found = (
        f"{time.records:,} records in {roughly(time.batch_ms)}, {roughly(time.commit_ms)} of it the commit: last batch"
    )
    if target_ms is None:
        return f"none: {counted(report.records_per_s)} records/s, at most {counted(time.most_per_s)}/s", found
    size = f"{time.records_within(target_ms):,} records"
    formula = f"= ({target_ms:,} ms - {time.commit_ms:,} ms) / {time.ms_per_record:.3g} ms a record"
    return f"--target-batch-ms {target_ms}, {size}\n{formula}", found


def _exactly_once(report: Report) -> tuple[str, str]:
    time = report.batch_time
    took = NOT_MEASURED if time is None else f"{roughly(time.commit_ms)} a commit, with Delta"
    commits = f"{counted(report.batches_per_s)} commits/s"
    each = f"{commits}, each of a position and at most {counted(report.markers)} markers"
    return f"{each}\nat least once: none of these", f"{took}\nbenchmark: {_published(report, 'exactly once')}"


def _catching_up(report: Report) -> tuple[str, str]:
    time, found = report.batch_time, report.measured
    took = NOT_MEASURED
    if found is not None and found.restart_ms is not None:
        took = f"{found.restart_ms / 1_000:,.1f} s between batches at the newest restart"
    if time is None:
        return NOT_MEASURED, took
    seconds = time.caught_up_s(report.records_per_s, 60)
    if seconds is None:
        return f"never: {counted(report.records_per_s)} records/s, at most {counted(time.most_per_s)}/s", took
    rate, most = (f"{counted(per_s)}/s" for per_s in (report.records_per_s, time.most_per_s))
    formula = f"{rate} x 60 s / ({most} - {rate})"
    return f"{counted(seconds)} s for each minute down\n= {formula}", took


def _partners(report: Report, operator: OperatorEstimate) -> tuple[str, str]:
    found = None if report.measured is None else report.measured.partners.get(operator.number)
    if found is None:
        return NOT_MEASURED, NOT_MEASURED
    rows = f"{found.near:,} rows held have a partner in it, {found.far:,} one outside of it, {found.alone:,} none"
    if found.before_ms is None or found.after_ms is None:
        return f"{NOT_MEASURED}: too few rows", rows
    between = " to ".join(roughly(ms) for ms in (found.least_ms, found.most_ms) if ms is not None)
    window = f"before {_rough(found.before_ms)} and after {_rough(found.after_ms)} hold 99 % of the partners"
    return window, f"{rows}\nright ones come {between} after left ones"


def _rough(ms: int) -> str:
    """Return the duration in words; more than 10 s in whole seconds, rounded up."""
    return readable(ms if ms < 10_000 else -(-ms // 1_000) * 1_000)


def _restart(report: Report) -> tuple[str, str]:
    rows, found, seconds = report.restart_rows, report.measured, report.restart_s
    what = "the whole state table" if rows is None else f"{counted(rows)} rows of open windows"
    if found is None:
        return f"{what}, time {NOT_MEASURED}", NOT_MEASURED
    took = f"{found.rows_read:,} rows in {found.read_back_s:.2f} s just now, without Spark's own start"
    if seconds is None or found.rows_read_per_s is None:
        return f"{what}, time {NOT_MEASURED}: too few rows", took
    return f"{what}: {seconds:.2f} s at {found.rows_read_per_s:,.0f} rows/s", took


def _on_disk(row_bytes: float | None) -> str:
    return f"bytes {NOT_MEASURED}" if row_bytes is None else f"{sized(row_bytes)} a row"


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
        benchmark=benchmark_figures(benchmark or RESULTS) if benchmark or RESULTS.exists() else {},
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


def document(report: Report) -> dict[str, Any]:
    """All figures of ``report``; None is what was not measured, or has no number."""
    time, target_ms = report.batch_time, report.target_ms
    return {
        "version": VERSION,
        "stream": report.topology.name,
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
            "per_s": report.batches_per_s,
            "records": report.records_per_s / report.batches_per_s,
            "emitted": report.emitted,
            "state_rows_changed": report.changed,
            "state_rows_appended_a_day": report.appended_a_day,
        },
        "exactly_once": {"transactions_per_s": report.batches_per_s, "markers_per_transaction": report.markers},
        "batch_time": None if time is None else {**asdict(time), "most_records_per_s": time.most_per_s},
        "recommended": {
            "target_batch_ms": target_ms,
            "records": None if time is None or target_ms is None else time.records_within(target_ms),
        },
        "retained": [{**asdict(one), "rows": one.rows} for one in report.retained],
        "restart": {
            "rows": report.restart_rows,
            "seconds": report.restart_s,
            "catching_up_s_a_minute": None if time is None else time.caught_up_s(report.records_per_s, 60),
        },
        "measured": None if report.measured is None else asdict(report.measured),
        "status": None if report.status is None else asdict(report.status),
        "benchmark": report.benchmark,
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
