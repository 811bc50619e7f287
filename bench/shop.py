"""``make shop``: every stream of the shop at once, in the drivers of its groups, while one fails and one is stopped."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from examples.shop.running_shop import ShopSource
from examples.shop.shop_records import SHARES, Pace, ShopFlow

from bench.report import Place
from bench.shop_report import Event, reported
from bench.shop_samples import ShopSample, ShopSampler
from recount.airflow.drivers import DriverProcess, log_of, record_of
from recount.airflow.streams import SMALL_JVM
from recount.airflow.submission import OF_EVERY_DRIVER
from recount.declare.registry import Declarations, declared
from recount.kafka.connection import Connection
from recount.kafka.leases import request_run, request_stop, withdraw_stop
from recount.kafka.status import last_epoch
from recount.kafka.topic_drift import all_topics
from recount.kafka.topics_on_cluster import apply, plan
from recount.profile.dag_runs import DagRuns
from recount.profile.embedded import Profile
from recount.profile.home import Home
from recount.runtime.errors import Transient

FAILING, STOPPED = "region-counts", "page-popularity"
LATE_EVERY, BAD_EVERY = 1_001, 10_007
VISITORS = 50_000
_START_LIMIT_S = 1_200
_END_LIMIT_S = 60.0


@dataclass
class Shop:
    """The shop on a running ``profile``; without Airflow its part is done by this program."""

    profile: Profile
    declarations: Declarations
    place: Place
    events: list[Event] = field(default_factory=list)

    @property
    def connection(self) -> Connection:
        """To its broker."""
        return Connection.of(self.profile.settings)

    def start(self) -> None:
        """Create the topics and order every stream to run."""
        admin = self.connection.admin()
        apply(admin, plan(admin, all_topics(self.declarations, self.connection.own), "embedded"))
        if self.profile.airflow:
            DagRuns(self.profile.airflow.api).unpause_streams(self.declarations.streams)
            return
        for stream in self.declarations.streams:
            request_run(self.connection, stream, 0)
        for group in self.declarations.groups:
            self._launch(group)

    def _launch(self, group: str) -> None:
        settings, memory = self.profile.settings, self.declarations.group(group).driver_memory
        submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]"]
        submit += ["--driver-memory", memory, "--conf", f"spark.driver.extraJavaOptions={SMALL_JVM}"]
        submit += ["--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=WARN"]
        submit += ["--jars", ",".join(str(jar) for jar in sorted(Path(settings.jars).glob("*.jar")))]
        job = [str(self.profile.project.spark_jobs / "stream.py"), "--group", group, "--on-order"]
        environment = {**OF_EVERY_DRIVER, **os.environ, **self.profile.environment, "SPARK_LOCAL_IP": "127.0.0.1"}
        environment["PYSPARK_PYTHON"] = sys.executable
        record, log = record_of(settings.run, group), log_of(settings.logs, group)
        DriverProcess.launch([*submit, *job], environment, record=record, log=log)

    def close(self) -> None:
        """End the drivers with all that they started, each after the batches of its streams."""
        for group in self.declarations.groups:
            driver = DriverProcess.find(record_of(self.profile.settings.run, group))
            if driver is not None:
                driver.end(patience_s=_END_LIMIT_S)

    def until(self, what: str, holds: Callable[[ShopSample], bool], sampler: ShopSampler) -> ShopSample:
        """The first sample that is as it should be."""
        deadline = time.monotonic() + _START_LIMIT_S
        while not holds(sample := taken(sampler)):
            if time.monotonic() > deadline:
                raise Transient(f"waited in vain for {what}", given=str(sample), remedy="read the logs of the drivers")
            time.sleep(2)
        return sample

    def fail(self) -> None:
        """Take away the checkpoint of a running stream: its next batch fails, and it waits for the order to start."""
        shutil.rmtree(f"{self.profile.settings.checkpoints}/{FAILING}")
        self._tell(FAILING, "its checkpoint is removed while it runs")

    def stop(self, stream: str) -> None:
        """The order to stop, as ``stream_control`` gives it."""
        request_stop(self.connection, stream, last_epoch(self.connection, stream))
        self._tell(stream, "ordered to stop")

    def run_again(self, stream: str) -> None:
        """The order to start, as ``stream_control`` gives it."""
        withdraw_stop(self.connection, stream)
        if self.profile.airflow is None:
            request_run(self.connection, stream, last_epoch(self.connection, stream))
        self._tell(stream, "ordered to start")

    def _tell(self, stream: str, what: str) -> None:
        self.events.append(Event(at_s=time.monotonic(), stream=stream, what=what))
        self.place.tell(f"{stream}: {what}")


def taken(sampler: ShopSampler) -> ShopSample:
    """A sample of now; what a busy broker does not answer is asked again."""
    for _ in range(20):
        try:
            return sampler.take()
        except Transient:
            time.sleep(3)
    return sampler.take()


def samples(shop: Shop, sampler: ShopSampler, minutes: float, every_s: float) -> Iterator[ShopSample]:
    """A sample every ``every_s`` seconds. What happens meanwhile, by tenths of the time."""
    steps = {
        2: lambda: shop.fail(),
        5: lambda: shop.run_again(FAILING),
        6: lambda: shop.stop(STOPPED),
        8: lambda: shop.run_again(STOPPED),
    }
    begun_s, number = time.monotonic(), 0
    while (passed_s := time.monotonic() - begun_s) < 60 * minutes:
        step = steps.pop(int(passed_s / (6 * minutes)), None)
        if step:
            step()
        yield taken(sampler)
        number += 1
        time.sleep(max(0.0, begun_s + number * every_s - time.monotonic()))


def steady_flow(declarations: Declarations, rate: int) -> ShopFlow:
    """Records of now, without bursts, disorder and deletions, so that a stream's lag is its own.

    Of ``VISITORS`` none is there more often than another: a key that makes a hundredth of all records is a robot.
    """
    return ShopFlow(
        partitions={name: topic.partitions for name, topic in declarations.topics.items() if name in SHARES},
        begin_ms=time.time_ns() // 1_000_000,
        pace=Pace(rate=rate, burst=1),
        people=VISITORS,
        skew=1,
        jitter_ms=0,
        late_every=LATE_EVERY,
        bad_every=BAD_EVERY,
        tombstone_every=0,
    )


def main(
    minutes: Annotated[float, typer.Option(min=1, help="How long, once every stream runs.")] = 30,
    rate: Annotated[int, typer.Option(min=100, help="Records a second, over all topics.")] = 2_000,
    every: Annotated[float, typer.Option(min=5, help="Seconds between two samples.")] = 15,
    airflow: Annotated[bool, typer.Option(help="Launch the streams through Airflow.")] = True,
    publish: Annotated[bool, typer.Option("--publish", help="Write the page to docs/operations.")] = False,
) -> None:
    """Run all streams of the shop, and judge whether they keep up and do not disturb each other."""
    place = Place.new()
    declarations = declared()
    home = Home(path=place.folder)
    profile = Profile(home=home, project=place.project, airflow=airflow, topologies="topologies")
    found: list[ShopSample] = []
    shop = Shop(profile=profile, declarations=declarations, place=place)
    with profile, closing(shop), (place.folder / "samples").open("a") as kept:
        begun_s = time.monotonic()
        shop.start()
        sampler = ShopSampler(shop.connection, declarations, home)
        all_run = len(declarations.streams)
        shop.until(
            "all streams to run",
            lambda one: sum(s.state == "running" for s in one.streams.values()) == all_run,
            sampler,
        )
        place.tell(f"{all_run} streams run after {time.monotonic() - begun_s:.0f} s")
        sampler = ShopSampler(shop.connection, declarations, home)
        zero_s = time.monotonic()
        with ShopSource(shop.connection.producer({"linger.ms": 50}), steady_flow(declarations, rate)) as source:
            for sample in samples(shop, sampler, minutes, every):
                source.require_well()
                found.append(sample)
                print(json.dumps(sample.to_json()), file=kept, flush=True)
                behind = max(sample.streams.items(), key=lambda item: item[1].lag)
                place.tell(
                    f"{sample.seconds:.0f} s: {sample.total_mib:,.0f} MiB; {behind[0]} is {behind[1].lag:,} behind"
                )
            sent = source.sent
    events = [Event(at_s=round(event.at_s - zero_s), stream=event.stream, what=event.what) for event in shop.events]
    settings = {"minutes": minutes, "rate": rate, "every_s": every, "airflow": airflow, "sent": sent}
    settings |= {"late_every": LATE_EVERY, "bad_every": BAD_EVERY, "visitors": VISITORS}
    reported(settings, declarations, found, events).hand_over(place, publish=publish)


if __name__ == "__main__":
    typer.run(main)
