"""``make bench-soak``: one stream at a steady rate for an hour; is its memory flat, its batch time, its file count?"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import typer

from bench.batches import Batch, batches_of
from bench.deployment import EMBEDDED, Deployment, deployed
from bench.jobs import JOBS, Job
from bench.report import Place
from bench.running import Program
from bench.soak_report import reported
from bench.soak_samples import Figures, Sampler
from bench.soak_source import SoakSource
from recount.engine.commit.delta_table import DELTA_LOG_KEPT_MS
from recount.runtime.errors import RecountError
from recount.runtime.times import milliseconds, readable

_TOPIC, _STREAM = "soak-orders", "soak"
_MAX_OFFSETS = 200_000
_SAMPLES_A_WORD = 30
_LOG_KEPT = readable(DELTA_LOG_KEPT_MS)
OfOrders = Literal["revenue-by-region", "counts-per-user", "sessions-per-user", "routing-by-region"]
"""The jobs that need orders only."""


class Follower(threading.Thread):
    """Takes down the batches of a program while it runs."""

    def __init__(self, program: Program) -> None:
        super().__init__(name="follower", daemon=True)
        self._program = program
        self._coming: queue.SimpleQueue[Batch | RecountError] = queue.SimpleQueue()

    def run(self) -> None:
        """Until the program ends."""
        try:
            for batch in batches_of(self._program):
                self._coming.put(batch)
        except RecountError as error:
            self._coming.put(error)

    def first(self) -> Batch:
        """Wait for the first batch; raises what ended the program if there is none."""
        return _checked(self._coming.get())

    def take(self) -> list[Batch]:
        """The batches since the last call; raises what ended the program."""
        found = []
        while not self._coming.empty():
            found.append(_checked(self._coming.get()))
        return found


def _checked(said: Batch | RecountError) -> Batch:
    if isinstance(said, RecountError):
        raise said
    return said


@dataclass(frozen=True, kw_only=True)
class Soak:
    """How long, how fast, how often a sample is taken; how long Delta logs are kept.

    A JVM grows until it has filled its ``heap`` once.
    """

    job: Job
    minutes: float
    per_second: int
    every_s: float
    heap: str
    log_kept_ms: int

    def samples(self, deployment: Deployment) -> Iterator[Figures]:
        """A sample every ``every_s`` seconds from the first batch on; raises what ended the stream before its time."""
        deployment.topics.create_source(_TOPIC)
        options = {"follow": "true", "delta-log-kept-ms": self.log_kept_ms}
        program = deployment.started(_STREAM, self.job, _TOPIC, max_offsets=_MAX_OFFSETS, heap=self.heap, **options)
        follower = Follower(program)
        topology = self.job.topology(_STREAM, _TOPIC, f"{_STREAM}-results")
        sampler = Sampler(deployment=deployment, topology=topology, pid=program.pid)
        try:
            with SoakSource(deployment.connection.producer(), _TOPIC, self.per_second):
                follower.start()
                follower.first()
                begun_s = time.monotonic()
                for number in range(1, round(self.minutes * 60 / self.every_s) + 1):
                    time.sleep(max(0.0, begun_s + number * self.every_s - time.monotonic()))
                    yield {"seconds": time.monotonic() - begun_s, **sampler.sample(follower.take())}
        finally:
            program.kill()


def main(
    minutes: Annotated[float, typer.Option(min=1, help="How long, from the first batch on.")] = 60,
    rate: Annotated[int, typer.Option(min=100, help="Orders a second.")] = 5_000,
    every: Annotated[float, typer.Option(min=1, help="Seconds between two samples.")] = 10,
    job: Annotated[OfOrders, typer.Option(help="What the stream does.")] = "revenue-by-region",
    heap: Annotated[str, typer.Option(help="Of the driver's JVM.")] = "1g",
    log_kept: Annotated[str, typer.Option(help="How long Delta logs are kept, such as '5 min'.")] = _LOG_KEPT,
    publish: Annotated[bool, typer.Option("--publish", help="Write the page to docs/operations.")] = False,
) -> None:
    """Run one stream for long, and judge what grows."""
    soak = Soak(
        job=JOBS[job],
        minutes=minutes,
        per_second=rate,
        every_s=every,
        heap=heap,
        log_kept_ms=milliseconds(log_kept, "log_kept"),
    )
    place = Place.new()
    taken: list[Figures] = []
    failure = ""
    with deployed(EMBEDDED, place.folder, place.project) as deployment, (place.folder / "samples").open("a") as kept:
        try:
            for figures in soak.samples(deployment):
                taken.append(figures)
                print(json.dumps(figures), file=kept, flush=True)
                if len(taken) % _SAMPLES_A_WORD == 0:
                    place.tell(f"{figures['seconds'] / 60:.0f} of {minutes:.0f} minutes")
        except RecountError as error:
            failure = str(error)
    settings = {**asdict(soak), "job": soak.job.what, "log_kept": readable(soak.log_kept_ms)}
    reported(settings, taken, failure).hand_over(place, publish=publish)
    if failure:
        sys.exit(f"the stream ended before its time: {failure}")


if __name__ == "__main__":
    typer.run(main)
