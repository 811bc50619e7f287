"""``recount estimate``: how much a topology keeps and costs, beside what its stream measures."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from recount.advise.estimate_report import RESULTS, benchmark_figures, document
from recount.advise.measured import measured
from recount.advise.workload import counted, sized, worded, workload
from recount.declare.registry import DEFAULT_MODULES, declared
from recount.kafka.connection import Connection
from recount.kafka.status import StatusBoard, StreamStatus, UnreadableStatus
from recount.runtime.console import print_whole
from recount.runtime.errors import RecountError, Terminal
from recount.runtime.settings import Settings
from recount.runtime.times import readable, roughly

NOT_MEASURED = "not measured"
Figures = Mapping[str, Any]
Line = tuple[str, str, str]
"""What it is about, the estimate, the measurement."""
_OF_ONE = "for one alone NAME=NUMBER; can be repeated"
_BATCH = (
    *("records in", "rows out, one Kafka transaction", "state append", "commit, Kafka and Delta"),
    *("batch that keeps up", "exactly once", "state table, rows a day", "restart, state read back"),
    "restart, catching up",
)


def page(said: Figures) -> Iterator[RenderableType]:
    """The workload, a table of operators, a table of batches and restarts, a table of what is kept."""
    found, what = said["measured"], "nothing, the stream has not run"
    if found is not None:
        rates = ", ".join(f"{topic} {counted(rate)} records/s" for topic, rate in sorted(found["rates"].items()))
        what = f"medians of its newest {found['batches']} batches" + (f"; of event time {rates}" if rates else "")
        what += "" if said["status"] is None else f"; its driver is {said['status']['state']}"
    yield Text(f"stream {said['stream']}", style="bold")
    yield f"assumed: {worded(said['assumed'])}"
    yield f"measured: {what}"
    tables = {"operator": _operators, "a batch": _batches, "kept in Delta": _retained}
    for title, lines in tables.items():
        table = Table(title, "estimate", "measured", box=None, padding=(0, 2, 0, 0))
        for line in lines(said):
            table.add_row(*line)
        yield table


def _operators(said: Figures) -> Iterator[Line]:
    found, states = said["measured"], [state for one in said["operators"] for state in one["states"]]
    for one in said["operators"]:
        yield f"{one['number']}. {one['operator']}", f"{counted(one['rows_per_s'])} rows/s leave it", ""
        if one["cost"]:
            yield "   join", one["cost"], NOT_MEASURED
            yield "   window", *_partners(found and found["partners"].get(one["number"]))
        for state in one["states"]:
            yield f"   {state['state']}", f"{_rows([state])}\n= {state['formula']}", _held(state["measured"])
    all_held = found and {name: sum(one[name] for one in found["held"].values()) for name in ("rows", "bytes")}
    yield "state in all", _rows(states), _held(all_held)


def _rows(states: list[Figures]) -> str:
    names = ("rows", "bytes", "bytes_for_ever_a_day")
    rows, size, growth = (sum(state[name] for state in states) for name in names)
    said = f"{counted(rows)} rows, {sized(size)}"
    return f"{said}\nand for ever {sized(growth)} more a day" if growth else said


def _held(found: Figures | None) -> str:
    return NOT_MEASURED if found is None else f"{found['rows']:,} rows, {sized(found['bytes'])}"


def _partners(found: Figures | None) -> tuple[str, str]:
    if found is None:
        return NOT_MEASURED, NOT_MEASURED
    rows = "{near:,} rows held have a partner in it, {far:,} one outside of it, {alone:,} none".format_map(found)
    if found["first_ms"] is None:
        return f"{NOT_MEASURED}: too few rows", rows
    before, after = (_rough(max(ms, 0)) for ms in (-found["first_ms"], found["last_ms"]))
    between = " to ".join(roughly(found[name]) for name in ("least_ms", "most_ms"))
    window = f"before {before} and after {after} hold 99 % of the partners"
    return window, f"{rows}\nright ones come {between} after left ones"


def _rough(ms: int) -> str:
    """Return the duration in words; more than 10 s in whole seconds, rounded up."""
    return readable(ms if ms < 10_000 else -(-ms // 1_000) * 1_000)


def _batches(said: Figures) -> Iterator[Line]:
    figures = dict(zip(_BATCH, zip(_estimated(said), _measured(said), strict=True), strict=True))
    for about, (estimate, found) in figures.items():
        yield about, estimate or NOT_MEASURED, found or NOT_MEASURED
    for of in ("throughput", "latency", "restart"):
        yield f"benchmark: {of}", "", _published(said, of)


def _published(said: Figures, of: str) -> str:
    """Figures of other streams, in the published run of the benchmark."""
    return "\n".join(said["benchmark"].get(of, ())) or NOT_MEASURED


def _estimated(said: Figures) -> Iterator[str | None]:
    """The estimate for each of ``_BATCH``; None where something would have to be measured for it."""
    batch, found, status, time = said["batch"], said["measured"], said["status"], said["batch_time"]
    per_s, trigger_ms, changed = batch["per_s"], said["assumed"]["trigger_ms"], batch["state_rows_changed"]
    rate = batch["records"] * per_s
    yield f"{counted(batch['records'])}, every {readable(trigger_ms)}"
    yield f"{counted(batch['emitted'])} in {counted(per_s)} transactions/s"
    row_bytes = found and _row_bytes(found["table"])
    size = "" if row_bytes is None else f" = {sized(changed * row_bytes)}"
    yield f"{counted(changed)} rows{' x' if size else ','} {_on_disk(row_bytes)}{size}"
    commit_ms = status and status["commit_duration_ms"]
    yield (
        None
        if commit_ms is None
        else f"{commit_ms / trigger_ms:.1%} of the time: {roughly(commit_ms)} of {readable(trigger_ms)}"
    )
    most = time and f"{counted(rate)} records/s, at most {counted(time['most_records_per_s'])}/s"
    target_ms, kept_up = said["recommended"]["target_batch_ms"], f"none: {most}"
    if target_ms is not None:
        each = 1_000 / time["most_records_per_s"]
        kept_up = (
            f"--target-batch-ms {target_ms}, {said['recommended']['records']:,} records\n"
            f"= ({target_ms:,} ms - {time['commit_ms']:,} ms) / {each:.3g} ms a record"
        )
    yield time and kept_up
    markers = counted(said["exactly_once"]["markers_per_transaction"])
    each = f"{counted(per_s)} commits/s, each of a position and at most {markers} markers"
    yield f"{each}\nat least once: none of these"
    yield f"{counted(batch['state_rows_appended_a_day'])} appended"
    yield _restart(said["restart"], found)
    seconds, caught_up = said["restart"]["catching_up_s_a_minute"], f"never: {most}"
    if seconds is not None:
        rates = [f"{counted(one)}/s" for one in (rate, time["most_records_per_s"])]
        caught_up = f"{counted(seconds)} s for each minute down\n= {rates[0]} x 60 s / ({rates[1]} - {rates[0]})"
    yield time and caught_up


def _restart(restart: Figures, found: Figures | None) -> str:
    seconds = restart["seconds"]
    if found is None or seconds is None:
        return f"the whole state table, time {NOT_MEASURED}" + ("" if found is None else ": too few rows")
    return f"the whole state table: {seconds:.2f} s at {found['rows_read'] / found['read_back_s']:,.0f} rows/s"


def _measured(said: Figures) -> Iterator[str | None]:
    """The measurement of each of ``_BATCH``; None without one."""
    found, status, time = said["measured"], said["status"], said["batch_time"]
    interval_ms, append_ms = (found and found[name] for name in ("interval_ms", "append_ms"))
    yield found and f"{found['records']:,.0f}" + ("" if interval_ms is None else f", every {roughly(interval_ms)}")
    yield found and f"{found['emitted']:,.0f}; {_on_disk(_row_bytes(found['outputs']))} in Delta"
    took = f", time {NOT_MEASURED}" if append_ms is None else f" in {roughly(append_ms)}"
    yield f"{found['changed']:,.0f} rows{took}" if found and found["table"]["rows"] else None
    commit_ms, batch_ms = (status and status[f"{name}_duration_ms"] for name in ("commit", "batch"))
    of = "" if batch_ms is None else f" of {roughly(batch_ms)}"
    yield None if commit_ms is None else f"{roughly(commit_ms)}{of}, last batch"
    yield time and (
        f"{time['records']:,} records in {roughly(time['batch_ms'])}, {roughly(time['commit_ms'])} of it the commit: "
        "last batch"
    )
    commit = NOT_MEASURED if time is None else f"{roughly(time['commit_ms'])} a commit, with Delta"
    yield f"{commit}\nbenchmark: {_published(said, 'exactly once')}"
    yield found and "now {rows:,} rows, {size} in {files:,} files".format(
        size=sized(found["table"]["bytes"]), **found["table"]
    )
    yield found and f"{found['rows_read']:,} rows in {found['read_back_s']:.2f} s just now, without Spark's own start"
    restart_ms = found and found["restart_ms"]
    yield None if restart_ms is None else f"{restart_ms / 1_000:,.1f} s between batches at the newest restart"


def _row_bytes(table: Figures) -> float | None:
    return table["bytes"] / table["rows"] if table["rows"] else None


def _on_disk(row_bytes: float | None) -> str:
    return f"bytes {NOT_MEASURED}" if row_bytes is None else f"{sized(row_bytes)} a row"


def _retained(said: Figures) -> Iterator[Line]:
    """Rows a day times days; bytes where a row was measured."""
    found = said["measured"]
    for one in said["retained"]:
        tables = {"ledger": None, "state": found and found["table"]}
        table = tables.get(one["table"], found and found["outputs"])
        of_row, rows_a_day = table and _row_bytes(table), counted(one["rows_a_day"])
        if one["rows"] is None:
            a_day = "" if of_row is None else f", {sized(one['rows_a_day'] * of_row)}"
            yield one["table"], f"{rows_a_day} rows a day{a_day}, for ever", ""
        else:
            size = f"bytes {NOT_MEASURED}" if of_row is None else sized(one["rows"] * of_row)
            kept = f"{rows_a_day} a day x {one['days']:g} days = {counted(one['rows'])} rows, {size}"
            yield one["table"], kept, ""


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
    found = measured(replace(declaration, name=name), root) if root else None
    if (stream or data) and found is None:
        raise Terminal.of("never-committed-here", given=f"{name} below {root}")
    said = document(
        declaration,
        given,
        measured=found,
        status=_status(settings, name) if settings and not data else None,
        benchmark=benchmark_figures(benchmark or RESULTS) if benchmark or RESULTS.exists() else {},
    )
    if as_json:
        typer.echo(json.dumps(said, indent=1))
    else:
        print_whole(*page(said))


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
