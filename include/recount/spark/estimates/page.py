"""A report on a terminal: estimate and measurement side by side."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from recount.core.durations import readable
from recount.spark.estimates.amounts import counted, sized
from recount.spark.estimates.benchmark import Benchmark, Figure
from recount.spark.estimates.operators import StateEstimate
from recount.spark.estimates.report import Report
from recount.spark.estimates.workload import Workload

NOT_MEASURED = "not measured"
Line = tuple[str, str, str]
"""What it is about, the estimate, the measurement."""


def page(report: Report) -> RenderableType:
    """The workload, a table of operators, a table of batches and restarts."""
    return Group(
        Text(f"stream {report.stream}", style="bold"),
        Text(_workload(report.given)),
        Text(_measured(report)),
        _table("operator", _operators(report)),
        _table("a batch", _batches(report)),
        _table("kept in Delta", _retained(report)),
    )


def _table(title: str, lines: Iterator[Line]) -> Table:
    table = Table(title, "estimate", "measured", box=None, padding=(0, 2, 0, 0))
    for line in lines:
        table.add_row(*line)
    return table


def _workload(given: Workload) -> str:
    parts = [
        *(f"{topic} {counted(rate)} records/s" for topic, rate in given.rates.items()),
        f"each {'other ' if given.rates else ''}topic {counted(given.rate)} records/s",
        *(f"{name} {counted(keys)} keys" for name, keys in given.keys_by_name.items()),
        f"each {'other ' if given.keys_by_name else ''}operator {counted(given.keys)} keys",
        f"{sized(given.record_bytes)} a record",
        f"a batch every {readable(given.trigger_ms)}",
    ]
    late = [f"the slowest partition {readable(given.late_by_ms)} behind"] if given.late_by_ms else []
    return f"assumed: {', '.join([*parts, *late])}"


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
        for state in operator.states:
            yield f"   {state.title}", _state(state), _held(report, state)
    yield "state in all", *_in_all(report)


def _state(state: StateEstimate) -> str:
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
    every = "" if found is None or found.interval_ms is None else f", every {found.interval_ms:,.0f} ms"
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
    yield "exactly once against at least once", NOT_MEASURED, NOT_MEASURED
    yield "state table, rows a day", *_state_table(report)
    yield "restart, state read back", *_restart(report)
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
    took = f", time {NOT_MEASURED}" if found.append_ms is None else f" in {found.append_ms:,.0f} ms"
    return expected, f"{found.changed:,.0f} rows{took}"


def _commit(report: Report) -> tuple[str, str]:
    """The share of time that commits take: how many a second, times how long one takes."""
    status, given = report.status, report.given
    if status is None or status.commit_duration_ms is None:
        return NOT_MEASURED, NOT_MEASURED
    share = status.commit_duration_ms / given.trigger_ms
    expected = f"{share:.1%} of the time: {status.commit_duration_ms:,} ms of {readable(given.trigger_ms)}"
    of = "" if status.batch_duration_ms is None else f" of {status.batch_duration_ms:,} ms"
    return expected, f"{status.commit_duration_ms:,} ms{of}, last batch"


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
