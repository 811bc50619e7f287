"""The results as rows of text: one table a job and flow, one for latency, one for recovery."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table

from bench.auditing import AGGREGATION, WHAT
from bench.contenders import RECOUNT
from bench.jobs import AUDITED_JOBS, JOBS
from bench.plan import LAGGING, SHORT, SHORT_RECORDS
from bench.results import AuditCost, Results, Summary, summaries

_MIB = 1 << 20
_PLAIN = (AGGREGATION, RECOUNT.name)
_FLOWS = {LAGGING: ", one partition 10 minutes behind", SHORT: f", {SHORT_RECORDS:,} records"}


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A table before it is drawn, and the ``name`` of its chart. The first column is text, the others are figures."""

    name: str
    title: str
    head: Sequence[str]
    body: Sequence[Sequence[str]]

    def rich(self) -> Table:
        """For a terminal."""
        table = Table(title=self.title, title_justify="left")
        for index, name in enumerate(self.head):
            table.add_column(name, justify="right" if index else "left")
        for row in self.body:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """For a page."""
        lines = [self.head, ["---", *["---:"] * (len(self.head) - 1)], *self.body]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def tables(results: Results) -> Iterator[Rows]:
    """Every table of ``results`` that has rows."""
    for (job, flow), contenders in summaries(results.throughput).items():
        yield _throughput(job, flow, contenders)
    if results.latency:
        yield _latency(results)
    if results.recovery:
        yield _recovery(results)
    if results.audit:
        yield _audit(results)


def _throughput(job: str, flow: str, contenders: Sequence[Summary]) -> Rows:
    ours = next((each.records_per_s for each in contenders if each.contender == RECOUNT.name), None)
    repeated = ["repeated"] if JOBS[job].results_once else []
    body = []
    for each in contenders:
        slowest, fastest = each.spread
        body.append(
            [
                each.contender,
                f"{each.records_per_s:,.0f}",
                f"{slowest:,.0f} to {fastest:,.0f}",
                _ratio(ours, each.records_per_s),
                f"{each.median(lambda run: run.wrongly_dropped):,.0f}",
                *(f"{each.median(lambda run: run.repeated):,.0f}" for _ in repeated),
                f"{each.median(lambda run: run.cpu_s_per_million):.1f}",
                f"{each.median(lambda run: run.broker_cpu_s * 1e6 / run.records):.1f}",
                f"{each.median(lambda run: run.peak_memory_bytes) / _MIB:,.0f}",
                f"{each.median(lambda run: run.state_bytes) / _MIB:,.2f}",
                f"{each.median(lambda run: run.kafka_bytes) / _MIB:,.1f}",
                f"{each.median(lambda run: run.others_cores):.2f}",
            ]
        )
    head = [
        "contender",
        "records/s",
        "spread",
        "Recount is",
        "wrongly dropped",
        *repeated,
        "CPU s per million",
        "broker's",
        "peak MiB",
        "state MiB",
        "to Kafka MiB",
        "others' cores",
    ]
    return Rows(name=f"{job}-{flow}", title=f"{JOBS[job].what}{_FLOWS.get(flow, '')}", head=head, body=body)


def _latency(results: Results) -> Rows:
    ours = {each.contender: each for each in results.latency}.get(RECOUNT.name)
    body = [
        [
            each.contender,
            f"{each.p50_ms:,.0f}",
            f"{each.p99_ms:,.0f}",
            _ratio(ours.p50_ms if ours else None, each.p50_ms),
            _ratio(ours.p99_ms if ours else None, each.p99_ms),
            f"{each.lost:,}",
        ]
        for each in results.latency
    ]
    head = ["contender", "p50 ms", "p99 ms", "Recount's p50 is", "Recount's p99 is", "not visible"]
    rate = f"{results.latency[0].per_second:,}"
    return Rows(name="latency", title=f"latency from produce to visible, {rate} records/s", head=head, body=body)


def _recovery(results: Results) -> Rows:
    runs: dict[tuple[str, int], list[float]] = {}
    for each in results.recovery:
        runs.setdefault((each.contender, each.keys), []).append(each.seconds)
    medians = {run: statistics.median(seconds) for run, seconds in runs.items()}
    body = [
        [
            contender,
            f"{keys:,}",
            f"{medians[contender, keys]:.1f}",
            _span(seconds),
            _ratio(medians.get((RECOUNT.name, keys)), medians[contender, keys]),
        ]
        for (contender, keys), seconds in runs.items()
    ]
    head = ["contender", "keys", "s", "spread", "Recount is"]
    return Rows(name="recovery", title="from the restart after kill -9 to the first new result", head=head, body=body)


def _audit(results: Results) -> Rows:
    runs: dict[tuple[str, str, str], list[AuditCost]] = {}
    in_order = sorted(results.audit, key=lambda cost: (list(AUDITED_JOBS).index(cost.job), list(WHAT).index(cost.what)))
    for each in in_order:
        runs.setdefault((each.job, each.what, each.contender), []).append(each)
    seconds = {of: statistics.median(each.seconds for each in found) for of, found in runs.items()}
    plain = {job: median for (job, what, contender), median in seconds.items() if (what, contender) == _PLAIN}
    body = [
        [
            job,
            WHAT[what] if contender == RECOUNT.name else f"{WHAT[what]}: {contender}",
            f"{found[0].records:,}",
            f"{seconds[job, what, contender]:.1f}",
            _span([each.seconds for each in found]),
            _ratio(seconds[job, what, contender], plain[job]) if job in plain else "",
            f"{statistics.median(each.cpu_s for each in found):.1f}",
            f"{statistics.median(each.peak_memory_bytes for each in found) / _MIB:,.0f}",
        ]
        for (job, what, contender), found in runs.items()
    ]
    head = ["job", "", "records", "s", "spread", "of the plain query", "CPU s", "peak MiB"]
    return Rows(name="audit", title="the audit of a stream", head=head, body=body)


def _span(seconds: Sequence[float]) -> str:
    return f"{min(seconds):.1f} to {max(seconds):.1f}"


def _ratio(ours: float | None, theirs: float) -> str:
    return f"{ours / theirs:.2f} x" if ours else ""
