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

from recount.advise.estimates.measured import measured
from recount.advise.estimates.report import RESULTS, Benchmark, Figure, Report
from recount.advise.estimates.state_estimate import OperatorEstimate, StateEstimate
from recount.advise.estimates.workload import counted, sized, workload
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
    """The workload, a table of operators, a table of batches and restarts."""
    yield Text(f"stream {report.stream}", style="bold")
    yield f"assumed: {report.given}"
    yield _measured(report)
    yield _table("operator", _operators(report))
    yield _table("a batch", _batches(report))
    yield _table("kept in Delta", _retained(report))


def _table(title: str, lines: Iterator[Line]) -> Table:
    table = Table(title, "estimate", "measured", box=None, padding=(0, 2, 0, 0))
    for line in lines:
        table.add_row(*line)
    return table


def _measured(report: Report) -> str:
    found = report.measured
    if found is None:
        return "measured: nothing, the stream has not run"
    rates = ", ".join(f"{topic} {counted(rate)} records/s" for topic, rate in sorted(found.rates.items()))
    said = f"measured: medians of its newest {found.batches} batches" + (f"; of event time {rates}" if rates else "")
    return said if report.status is None else f"{said}; its driver is {report.status.state}"


def _operators(report: Report) -> Iterator[Line]:
    for operator in report.operators:
        yield f"{operator.number}. {operator.title}", f"{counted(operator.rows_per_s)} rows/s leave it", ""
        if operator.cost:
            yield "   join", operator.cost, NOT_MEASURED
            yield "   window", *_partners(report, operator)
        for state in operator.states:
            yield f"   {state.title}", _state_lines(state), _held(report, state)
    yield "state in all", *_in_all(report)


def _state_lines(state: StateEstimate) -> str:
    lines = [f"{counted(state.kept.rows)} rows, {sized(state.bytes)}"]
    if state.bytes_a_day:
        lines.append(f"and for ever {sized(state.bytes_a_day)} more a day")
    return "\n".join([*lines, f"= {state.kept.formula}"])


def _held(report: Report, state: StateEstimate) -> str:
    held = report.held(state)
    return NOT_MEASURED if held is None else f"{held.rows:,} rows, {sized(held.bytes)}"


def _in_all(report: Report) -> tuple[str, str]:
    states = [state for operator in report.operators for state in operator.states]
    growth = sum(state.bytes_a_day for state in states)
    expected = f"{counted(report.batch.held)} rows, {sized(sum(state.bytes for state in states))}"
    if growth:
        expected += f"\nand for ever {sized(growth)} more a day"
    if report.measured is None:
        return expected, NOT_MEASURED
    held = report.measured.held.values()
    return expected, f"{sum(one.rows for one in held):,} rows, {sized(sum(one.bytes for one in held))}"


def _batches(report: Report) -> Iterator[Line]:
    batch, found, given = report.batch, report.measured, report.given
    every = "" if found is None or found.interval_ms is None else f", every {roughly(found.interval_ms)}"
    yield (
        "records in",
        f"{counted(batch.records)}, every {readable(given.trigger_ms)}",
        NOT_MEASURED if found is None else f"{found.records:,.0f}{every}",
    )
    yield (
        "rows out, one Kafka transaction",
        f"{counted(batch.emitted)} in {counted(batch.per_s)} transactions/s",
        NOT_MEASURED if found is None else f"{found.emitted:,.0f}; {_on_disk(found.outputs.row_bytes)} in Delta",
    )
    yield "state append", *_append(report)
    yield "commit, Kafka and Delta", *_commit(report)
    yield "batch that keeps up", *_target(report)
    yield "exactly once", *_exactly_once(report)
    yield "state table, rows a day", *_state_table(report)
    yield "restart, state read back", *_restart(report)
    yield "restart, catching up", *_catching_up(report)
    yield from _published(report)


def _retained(report: Report) -> Iterator[Line]:
    """Rows a day times days; bytes where a row was measured."""
    found = report.measured
    row_bytes = {} if found is None else {"state": found.table.row_bytes}
    for one in report.retained:
        of_row = row_bytes.get(one.table)
        if found is not None and one.table.startswith("outputs/"):
            of_row = found.outputs.row_bytes
        if one.rows is None or one.days is None:
            a_day = "" if of_row is None else f", {sized(one.rows_a_day * of_row)}"
            yield one.table, f"{counted(one.rows_a_day)} rows a day{a_day}, for ever", ""
        else:
            size = f"bytes {NOT_MEASURED}" if of_row is None else sized(one.rows * of_row)
            yield (
                one.table,
                f"{counted(one.rows_a_day)} a day x {one.days:g} days = {counted(one.rows)} rows, {size}",
                "",
            )


def _append(report: Report) -> tuple[str, str]:
    found, expected = report.measured, f"{counted(report.batch.changed)} rows"
    if found is None or found.table.row_bytes is None:
        return f"{expected}, bytes {NOT_MEASURED}", NOT_MEASURED
    expected += f" x {_on_disk(found.table.row_bytes)} = {sized(report.batch.changed * found.table.row_bytes)}"
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
    cost, published = report.exactly_once, report.benchmark or Benchmark()
    time = report.batch_time
    took = NOT_MEASURED if time is None else f"{roughly(time.commit_ms)} a commit, with Delta"
    each = f"{counted(cost.per_s)} commits/s, each of a position and at most {counted(cost.markers)} markers"
    return f"{each}\nat least once: none of these", f"{took}\nbenchmark: {_figure(published.exactly_once)}"


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


def _state_table(report: Report) -> tuple[str, str]:
    expected, found = f"{counted(report.batch.appended_a_day)} appended", report.measured
    if found is None:
        return expected, NOT_MEASURED
    return expected, f"now {found.table.rows:,} rows, {sized(found.table.bytes)} in {found.table.files:,} files"


def _restart(report: Report) -> tuple[str, str]:
    rows, found, seconds = report.batch.restart_rows, report.measured, report.restart_s
    what = "the whole state table" if rows is None else f"{counted(rows)} rows of open windows"
    if found is None:
        return f"{what}, time {NOT_MEASURED}", NOT_MEASURED
    took = f"{found.rows_read:,} rows in {found.read_back_s:.2f} s just now, without Spark's own start"
    if seconds is None or found.rows_read_per_s is None:
        return f"{what}, time {NOT_MEASURED}: too few rows", took
    return f"{what}: {seconds:.2f} s at {found.rows_read_per_s:,.0f} rows/s", took


def _published(report: Report) -> Iterator[Line]:
    """Figures of other streams, in the published run of the benchmark."""
    found = report.benchmark or Benchmark()
    yield "benchmark: throughput", "", _figure(found.throughput)
    yield "benchmark: latency", "", _figure(found.latency)
    yield "benchmark: restart", "", "\n".join(map(_figure, found.recovery)) or NOT_MEASURED


def _figure(figure: Figure | None) -> str:
    return NOT_MEASURED if figure is None else f"{figure.said} ({figure.of})"


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
