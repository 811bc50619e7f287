"""One stream read to the end of its topic in one deployment, undisturbed or while machines are lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.batches import Batch, batches_until
from bench.deployment import Deployment
from bench.flow import Flow
from bench.jobs import GRACE_MS, REVENUE_BY_REGION
from bench.processes import cpu_s
from bench.results_topic import VisibleResults
from recount.kafka.connection import REQUEST_TIMEOUT_S
from recount.kafka.topic_drift import CONTROL

JOB = REVENUE_BY_REGION


@dataclass(frozen=True, kw_only=True)
class Loss:
    """kill -9 to a machine as soon as the stream has read the share ``after`` of its topic."""

    what: str
    after: float
    strike: Callable[[Deployment], None]


def _kill_worker(deployment: Deployment) -> None:
    assert deployment.spark is not None, "a worker is lost where there are workers"
    deployment.spark.kill_worker(1)


def _kill_broker(deployment: Deployment) -> None:
    """The one that leads the control topic, to which every driver listens."""
    topics = deployment.connection.admin().list_topics(CONTROL, REQUEST_TIMEOUT_S).topics
    deployment.kafka.stop_broker(topics[CONTROL].partitions[0].leader, patience_s=0)


LOSSES = (
    Loss(what="a worker", after=0.25, strike=_kill_worker),
    Loss(what="a broker", after=0.6, strike=_kill_broker),
)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A stream read to its end; ``cpu_s`` of all processes, those of Kafka and Spark included, over the warm batches.

    Warm are the batches of the second half. ``pauses_s`` says for each loss how long after it the next batch was
    committed; after a loss rate and processor time are of what was left.
    """

    stream: str
    deployment: str
    counted: int
    on_time: int
    batches: Sequence[Batch]
    cpu_s: float
    pauses_s: Mapping[str, float]

    @property
    def warm(self) -> Sequence[Batch]:
        """The second half of the batches; the JVMs grow warm in the first."""
        return self.batches[first_warm(self.batches) :]

    @property
    def warm_records(self) -> int:
        """Read in the warm batches."""
        return sum(batch.records for batch in self.warm)

    @property
    def records_per_s(self) -> float:
        """Over the warm batches."""
        begun_ms = self.batches[first_warm(self.batches) - 1].at_ms
        return self.warm_records * 1_000 / (self.batches[-1].at_ms - begun_ms)

    @property
    def cpu_s_per_million(self) -> float:
        """Over the warm batches."""
        return self.cpu_s * 1e6 / self.warm_records


def read_all(deployment: Deployment, stream: str, flow: Flow, max_offsets: int, losses: Sequence[Loss] = ()) -> Reading:
    """Let ``stream`` read all of ``flow``, which is in its topic, in batches of ``max_offsets``, at least two."""
    batches: list[Batch] = []
    cpu: list[float] = []
    pauses_s: dict[str, float] = {}
    coming, struck = list(losses), ""
    struck_s, done = 0.0, 0
    program = deployment.started(stream, JOB, flow.topic, max_offsets=max_offsets)
    try:
        for batch in batches_until(program, flow.records):
            batches.append(batch)
            cpu.append(cpu_s([program.pid, *deployment.daemons]))
            done += batch.records
            if struck:
                pauses_s[struck], struck = time.monotonic() - struck_s, ""
            if coming and done >= coming[0].after * flow.records:
                loss = coming.pop(0)
                struck, struck_s = loss.what, time.monotonic()
                loss.strike(deployment)
        program.finish()
    finally:
        program.kill()
    return Reading(
        stream=stream,
        deployment=deployment.shape.name,
        counted=VisibleResults.of(deployment.connection, f"{stream}-results").read_all(),
        on_time=flow.on_time(GRACE_MS),
        batches=batches,
        cpu_s=cpu[-1] - cpu[first_warm(batches) - 1],
        pauses_s=pauses_s,
    )


def first_warm(batches: Sequence[Batch]) -> int:
    """The index of the first batch of the second half, at least 1."""
    return max(1, len(batches) // 2)
