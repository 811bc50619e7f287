"""Runs one contender once, alone, and takes its measures."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cluster import Cluster, folder_bytes
from bench.contenders import Contender
from bench.flow import SeededFlow
from bench.jobs import PAID_WITHIN, SESSION_GAP, Job
from bench.process_tree import ProcessTree, busy_s
from bench.results import Throughput
from bench.results_topic import VisibleResults
from recount.profile.daemon import end_of
from recount.profile.home import Project
from recount.runtime.errors import Terminal, Transient
from recount.runtime.times import milliseconds

_LIMIT_S = 600.0


class Program:
    """A contender started in the checkout ``root``: its events, and its end."""

    def __init__(self, command: list[str], root: Path, log: Path) -> None:
        self._log = log
        environment = {
            **os.environ,
            "PYTHONPATH": f"{root}:{root / 'include'}",
            "PYTHONUNBUFFERED": "1",
        }
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=root,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def wait_for(self, event: str) -> dict[str, Any]:
        """The next ``event`` of the program; raises ``Transient`` with the end of its log when it ends or hangs."""
        watchdog = threading.Timer(_LIMIT_S, self.kill)
        watchdog.start()
        try:
            assert self._process.stdout is not None
            for line in self._process.stdout:
                if line.startswith(b"{"):
                    said: dict[str, Any] = json.loads(line)
                    if said["event"] == event:
                        return said
        finally:
            watchdog.cancel()
        raise Transient(f"a contender ended before it was {event}", given=end_of(self._log), remedy=f"read {self._log}")

    def finish(self) -> None:
        """Wait for the program to end by itself."""
        try:
            code = self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            return
        if code:
            raise Terminal(f"a contender failed with {code}", given=end_of(self._log), remedy=f"read {self._log}")

    def kill(self) -> None:
        """kill -9, with everything it started."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where contenders run: the checkout, the broker, a folder for their state, the size of a batch."""

    project: Project
    cluster: Cluster
    folder: Path
    max_offsets: int

    @contextmanager
    def prepared(self, contender: Contender, job: Job) -> Iterator[Run]:
        """A run with fresh names and output topics, all removed in the end."""
        run = Run(bench=self, contender=contender, job=job, application=f"bench-{uuid.uuid4().hex[:8]}")
        run.state.mkdir(parents=True)
        self.cluster.create([*job.outputs(run.output), *job.outputs(f"warm-up-{run.output}")])
        try:
            yield run
        finally:
            self.cluster.remove(run.application)
            shutil.rmtree(run.state, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One contender on one job."""

    bench: Bench
    contender: Contender
    job: Job
    application: str

    @property
    def state(self) -> Path:
        """The folder of everything the contender writes."""
        return self.bench.folder / self.application

    @property
    def output(self) -> str:
        """The topic of its results, or how the names of several begin."""
        return f"{self.application}-results"

    @property
    def results(self) -> VisibleResults:
        """Its results, from the beginning."""
        return VisibleResults.of(self.bench.cluster.connection, self.output, self.job.routes)

    def started(self, topic: str, **pairs: object) -> Program:
        """The contender's program, started on ``topic``."""
        return self.program(self.contender.command(self.bench.project, self.given(topic, **pairs)))

    def given(self, topic: str, **pairs: object) -> dict[str, object]:
        """The arguments of a program that reads ``topic``."""
        return {
            "bootstrap": self.bench.cluster.connection.bootstrap_servers,
            "job": self.job.name,
            "topic": topic,
            "output": self.output,
            "application": self.application,
            "state": self.state,
            "max-offsets": self.bench.max_offsets,
            "session-gap-ms": milliseconds(SESSION_GAP),
            "paid-within-ms": milliseconds(PAID_WITHIN),
            **pairs,
        }

    def program(self, command: list[str]) -> Program:
        """``command``, started, with its log beside those of the other runs."""
        root = self.contender.checkout or self.bench.project.root
        return Program(command, root, self.bench.folder / f"{self.application}.log")

    def warm_up(self, flow: SeededFlow) -> dict[str, object]:
        """The arguments of a warm-up on ``flow``, whose names are those of the run apart."""
        return {
            "warm-up-topic": flow.topic,
            "warm-up-records": flow.records,
            "warm-up-output": f"warm-up-{self.output}",
            "warm-up-application": f"{self.application}-warm-up",
        }

    def throughput(self, flow: SeededFlow, warm_up: SeededFlow) -> Throughput:
        """Run to the end of ``flow`` after a warm-up in the same process."""
        program = self.started(flow.topic, records=flow.records, **self.warm_up(warm_up))
        cluster = self.bench.cluster
        try:
            with ProcessTree(program.pid) as tree, ProcessTree(cluster.pid) as broker:
                program.wait_for("measuring")
                before, begun_s = (tree.cpu_s, broker.cpu_s, busy_s()), time.monotonic()
                measured = program.wait_for("measured")
                after, ended_s = (tree.cpu_s, broker.cpu_s, busy_s()), time.monotonic()
                peak_bytes = tree.peak_bytes
            program.finish()
        finally:
            program.kill()
        cpu_s, broker_cpu_s, all_cpu_s = (end - start for start, end in zip(before, after, strict=True))
        results = self.results
        counted = results.read_all()
        state = self.contender.state_folder(self.state, self.application)
        return Throughput(
            job=self.job.name,
            flow=flow.topic,
            contender=self.contender.name,
            records=flow.records,
            seconds=(measured["last_ms"] - measured["first_ms"]) / 1_000,
            counted=counted,
            on_time=self.job.exact(flow, self.contender.grace_ms),
            cpu_s=cpu_s,
            broker_cpu_s=broker_cpu_s,
            peak_memory_bytes=peak_bytes,
            state_bytes=folder_bytes(state) + cluster.log_bytes(self.contender.changelogs(self.application)),
            kafka_bytes=cluster.log_bytes(self.application) - cluster.log_bytes(f"warm-up-{self.output}"),
            others_cores=max(0.0, all_cpu_s - cpu_s - broker_cpu_s) / (ended_s - begun_s),
            repeated=results.repeated if self.job.results_once else 0,
        )
