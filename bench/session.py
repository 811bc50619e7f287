"""One session of the benchmark: every measurement of a plan, each contender alone, in alternation."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import product

import psutil

from bench.auditing import AGGREGATION, measure_audit, measured_of
from bench.flow import SeededFlow
from bench.jobs import COUNTS_PER_USER, REVENUE_BY_REGION, Job
from bench.latency import measure_latency
from bench.plan import Plan
from bench.recovery import measure_recovery, recovery_flow
from bench.results import Results
from bench.running import Bench
from recount.runtime.errors import RecountError

Tell = Callable[[str], None]
Save = Callable[[Results], None]


class Session:
    """Measures ``plan`` on ``bench``; tells what it does, and hands the results over after every measurement."""

    def __init__(self, bench: Bench, plan: Plan, tell: Tell, save: Save) -> None:
        self._bench, self._plan, self._tell, self._save = bench, plan, tell, save
        sizes = ("records", "other_records", "warm_up_records", "max_offsets")
        self.results = Results(machine=machine(), settings={name: getattr(plan, name) for name in sizes})

    def throughput(self) -> None:
        """Every scenario, repeat by repeat, the contenders taking turns; who begins changes with each repeat.

        Of two checkouts of one commit, the second in each repeat was up to a sixth faster, whichever it was: so an even
        number of repeats is fair.
        """
        flows, warm_ups = (
            {name: of(name) for name in dict.fromkeys(scenario.flow for scenario in self._plan.scenarios)}
            for of in (self._plan.flow, self._plan.warm_up)
        )
        self._produce([*warm_ups.values(), *flows.values()])
        for scenario in self._plan.scenarios:
            for repeat in range(scenario.repeats):
                for contender in scenario.contenders[:: -1 if repeat % 2 else 1]:
                    what = (
                        f"{scenario.job.name} on {scenario.flow}, {repeat + 1} of {scenario.repeats}: {contender.name}"
                    )
                    with self._attempt(what), self._bench.prepared(contender, scenario.job) as run:
                        measured = run.throughput(flows[scenario.flow], warm_ups[scenario.flow])
                        self.results.throughput.append(measured)
                        self._tell(f"{what}: {measured.records_per_s:,.0f} records/s")

    def latency(self) -> None:
        """At a fixed rate, each contender on a topic of its own."""
        plan = self._plan
        for number, contender in enumerate(plan.followers):
            what, topic = f"latency: {contender.name}", f"latency-{number}"
            self._bench.cluster.create_source(topic)
            with self._attempt(what), self._bench.prepared(contender, REVENUE_BY_REGION) as run:
                measured = measure_latency(
                    run,
                    topic,
                    per_second=plan.latency_per_second,
                    warm_up_s=plan.latency_warm_up_s,
                    measured_s=plan.latency_s,
                )
                self.results.latency.append(measured)
                self._tell(f"{what}: p50 {measured.p50_ms:.0f} ms, p99 {measured.p99_ms:.0f} ms")
            self._bench.cluster.remove(topic)

    def recovery(self) -> None:
        """By the number of keys; each contender on a topic of its own, for the measurement appends to it."""
        for keys in self._plan.recovery_keys:
            for number, contender in enumerate(self._plan.recovering(keys)):
                what, flow = (
                    f"recovery, {keys:,} keys: {contender.name}",
                    recovery_flow(f"recovery-{keys}-{number}", keys),
                )
                self._produce([flow])
                with self._attempt(what), self._bench.prepared(contender, COUNTS_PER_USER) as run:
                    measured = measure_recovery(run, flow, self._plan.recovery_repeats)
                    self.results.recovery.extend(measured)
                    self._tell(f"{what}: {', '.join(f'{each.seconds:.1f}' for each in measured)} s")
                self._bench.cluster.remove(flow.topic)

    def audit(self) -> None:
        """Of each job the plain query, and the audits of a stream of each contender in turns."""
        for job, flow in self._plan.audited_jobs:
            self._audit(job, flow)

    def _audit(self, job: Job, name: str) -> None:
        """All but the second night begin at the beginning. Each contender has a topic: archives would share a group."""
        flows = [self._plan.audited_flows(job, name, number) for number in range(len(self._plan.audited))]
        self._produce(one for both in flows for one in both)
        with self._attempt(f"the streams of {job.name} to audit"), ExitStack() as prepared:
            runs = [prepared.enter_context(self._bench.prepared(contender, job)) for contender in self._plan.audited]
            for run, (flow, warm_up) in zip(runs, flows, strict=True):
                run.throughput(flow, warm_up)
            repeats, audited = range(self._plan.audit_repeats), zip(runs, flows, strict=True)
            for repeat, each, (run, (flow, warm_up)) in product(repeats, measured_of(job), audited):
                if each == AGGREGATION and run is not runs[0]:
                    continue
                nth = f"{repeat + 1} of {self._plan.audit_repeats}"
                what = f"audit of {job.name}, {nth}: {each} of {run.contender.name}"
                with self._attempt(what):
                    measured = measure_audit(run, each, flow, warm_up)
                    self.results.audit.append(measured)
                    self._tell(f"{what}: {measured.seconds:.1f} s")
        self._bench.cluster.remove(f"audited-{job.name}")

    @contextmanager
    def _attempt(self, what: str) -> Iterator[None]:
        """One measurement; if it fails the others still count, and the results say what is missing."""
        try:
            yield
        except RecountError as error:
            self.results.failures.append(f"{what}: {error}")
            self._tell(f"{what}: failed: {error}")
        self._save(self.results)

    def _produce(self, flows: Iterable[SeededFlow]) -> None:
        producer = self._bench.cluster.connection.producer({"linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
        for flow in flows:
            self._tell(f"producing {flow.records:,} records to {' and '.join(flow.topics)}")
            for topic in flow.topics:
                self._bench.cluster.create_source(topic)
            flow.produce(producer)


def machine() -> dict[str, object]:
    """What the figures were taken on."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]  # noqa: S607
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30)),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "java": java,
        "load_at_start": round(os.getloadavg()[0], 2),
    }
