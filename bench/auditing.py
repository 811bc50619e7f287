"""The cost of the audit: that of all that a stream has read, beside the plain batch query of the same records."""

from __future__ import annotations

from bench.flow import SeededFlow
from bench.jobs import REVENUE_BY_REGION, Job
from bench.process_tree import ProcessTree
from bench.results import AuditCost
from bench.running import Run
from recount.runtime.errors import Terminal

AGGREGATION, AUDIT, ARCHIVE, SECOND_NIGHT = "aggregation", "audit", "archive", "second-night"
EXPECTATIONS = "expectations"
WHAT = {
    AGGREGATION: "plain Spark batch query, from Kafka to Delta",
    AUDIT: "Recount's audit, both verdicts, with its certificate, from Kafka",
    ARCHIVE: "the same audit, from the archive",
    SECOND_NIGHT: "the second night: the last batch alone",
    EXPECTATIONS: "Great Expectations, all suites, after the audit from Kafka",
}
"""What ``bench.audit_job`` can measure."""


def measured_of(job: Job) -> list[str]:
    """What is measured of ``job``; the archive of one job only, for it is the same for all."""
    return [what for what in WHAT if what != ARCHIVE or job is REVENUE_BY_REGION]


def measure_audit(run: Run, what: str, flow: SeededFlow, warm_up: SeededFlow) -> AuditCost:
    """``what`` in a process of its own, after a warm-up; the stream of ``run`` must have processed both flows."""
    contender = run.contender
    pairs = run.given(flow.topic, records=flow.records, jars=contender.jars(run.bench.project), **run.warm_up(warm_up))
    command = [contender.python, "-m", "bench.audit_job", what, *(f"{name}={value}" for name, value in pairs.items())]
    program = run.program(command)
    try:
        with ProcessTree(program.pid) as tree:
            program.wait_for("measuring")
            before_s = tree.cpu_s
            measured = program.wait_for("measured")
            cpu_s, peak_bytes = tree.cpu_s - before_s, tree.peak_bytes
        program.finish()
    finally:
        program.kill()
    if what != SECOND_NIGHT and measured["records"] != flow.records:
        raise Terminal(f"{what} has not read all records", given=measured["records"], expected=f"{flow.records}")
    if measured["violations"]:
        raise Terminal("the audit found violations", given=measured["violations"], remedy="see the log of the run")
    return AuditCost(
        what=what,
        records=measured["records"],
        seconds=measured["milliseconds"] / 1_000,
        cpu_s=cpu_s,
        peak_memory_bytes=peak_bytes,
        contender=contender.name,
        job=run.job.name,
    )
