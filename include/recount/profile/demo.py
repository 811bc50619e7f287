"""The demo of one stream: the whole chain on generated orders, in the real Airflow, and whether all of it held.

The orders are realistic, with a known number of late and of bad records planted in them.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Protocol

import typer
from rich.console import Console, RenderableType

from recount.declare.topics import Topic
from recount.kafka.connection import Connection
from recount.profile.demo_steps import TOPOLOGIES, DemoOutcome, DemoSteps
from recount.profile.embedded import Profile
from recount.profile.home import Home, Project, Running
from recount.runtime.errors import Terminal
from recount.runtime.times import clock_ms, milliseconds, readable

_console = Console(highlight=False, soft_wrap=True)


class Shown(Protocol):
    """The findings of a demo."""

    @property
    def held(self) -> bool: ...

    def summary(self) -> RenderableType: ...


class Injection(StrEnum):
    """How the output is tampered with before the audit."""

    duplicate = "duplicate"
    loss = "loss"
    alter = "alter"
    extra = "extra"


def demo(
    inject: Annotated[Injection | None, typer.Option(help="tamper with the output before the audit")] = None,
    records: Annotated[int, typer.Option(min=100_000, help="how many orders")] = 1_000_000,
    keep: Annotated[bool, typer.Option("--keep", help="leave everything running at the end")] = False,
    secure: Annotated[bool, typer.Option("--secure", help="on a Kafka with TLS, passwords and ACLs")] = False,
) -> None:
    """Run the whole chain on a generated flow, and say what held. Exit code 1 when something did not."""
    flow = OrderFlow(end_ms=clock_ms(), records=records)
    shown(lambda profile, say: _run(profile, flow, inject, say), topologies=TOPOLOGIES, keep=keep, secure=secure)


def shown(
    run: Callable[[Profile, Callable[[str], None]], Shown], *, topologies: str, keep: bool, secure: bool = False
) -> None:
    """Start from nothing, ``run`` a demo on a profile of its own, say what held, and stop unless it is to be kept.

    ``run`` is given somebody to tell of each step. Ends the command with 1 when something did not
    hold. ``secure`` as ``Profile`` has it.
    """
    home = Home(path=Home.of(Project.containing(Path.cwd()).root).path / "demo")
    started = time.monotonic()
    with home.locked():
        _refuse_a_running_one(home)
        for folder in (home.kafka, home.airflow, home.tables, home.checkpoints, home.reports, home.logs):
            Home(path=folder).delete()
        profile = Profile(home=home, project=Project.containing(Path.cwd()), topologies=topologies, secure=secure)
        # A SIGTERM shall clean up as Ctrl-C does.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        kept = False
        try:
            outcome = run(profile, lambda text: _console.print(f"[dim]{time.monotonic() - started:5.0f} s[/]  {text}"))
            _console.print(outcome.summary())
            kept = keep
        finally:
            if not kept:
                profile.stop()
    if kept:
        _console.print(f"\nstill running; look around, then stop it with: RECOUNT_HOME={home.path} make down")
    else:
        _console.print(f"\neverything is stopped; reports and logs stay in {home.path} until the next demo")
    raise typer.Exit(0 if outcome.held else 1)


def _refuse_a_running_one(home: Home) -> None:
    if Running.read(home):
        raise Terminal.of("demo-still-running", given=str(home.path), path=home.path)


def _run(profile: Profile, flow: OrderFlow, inject: Injection | None, say: Callable[[str], None]) -> DemoOutcome:
    started = time.monotonic()
    say(f"{flow.records:,} orders over {readable(flow.span_ms)}: {flow.late} planted too late, {flow.bad} bad")
    profile.start(report=say)
    steps = DemoSteps(profile, flow, say)
    say(f"Airflow: {steps.airflow.url}  user {steps.airflow.username}, password {steps.airflow.password}")
    steps.create_topics()
    steps.stream_through_a_crash()
    if inject:
        steps.tamper(inject.value)
    first = steps.audit()
    second = None
    if first.outcome == "match":
        second = steps.backfill()
    return DemoOutcome(
        flow=flow,
        first=steps.ended(first),
        second=second,
        injected=inject is not None,
        airflow_url=steps.airflow.url,
        reports=Path(profile.settings.reports),
        seconds=time.monotonic() - started,
    )


_REGIONS = {"EU": 34, "US": 29, "APAC": 18, "LATAM": 9, "MEA": 5, "ANZ": 4, None: 1}
_REGION_NAMES = list(_REGIONS)
_REGION_WEIGHTS = list(accumulate(_REGIONS.values()))
_STATUSES = ("new", "paid", "shipped")
_CUSTOMERS = 40_000
_VIPS = 800
_PRODUCTS = 500
_MEDIAN_AMOUNT = 38.0
_AMOUNT_SPREAD = 0.9
_BAD_VALUES = (
    b'{"order_id": "truncated in transit", "amou',
    b'{"order_id":"text-amount","region":"EU","amount":"12.50 EUR"}',
    b'{"region":"EU","amount":12.50}',
    b'{"order_id":"third-of-a-cent","region":"EU","amount":0.333}',
)


@dataclass(frozen=True, kw_only=True)
class Order:
    partition: int
    key: bytes
    value: bytes
    timestamp_ms: int


@dataclass(frozen=True, kw_only=True)
class OrderFlow:
    """``records`` orders over ``span_ms`` of event time that end at ``end_ms``, in the order they are produced.

    Every partition is out of order by up to ``jitter_ms``; the last one is ``lag_ms`` behind the others. One in
    ``late_every`` records of the second half is more than ``window_ms + grace_ms`` behind its partition's stream time,
    and so is late whatever window it falls in; none of the others is, as long as ``jitter_ms <= grace_ms``. One in
    ``bad_every`` cannot be processed. The same seed gives the same flow.
    """

    end_ms: int
    records: int = 1_000_000
    partitions: int = 4
    span_ms: int = milliseconds("2 h")
    lag_ms: int = milliseconds("7 min")
    jitter_ms: int = milliseconds("4 s")
    window_ms: int = milliseconds("5 min")
    grace_ms: int = milliseconds("5 s")
    late_every: int = 2_003
    bad_every: int = 9_973
    seed: int = 20

    @property
    def late(self) -> int:
        return sum(self._is_late(index) for index in range(self.records))

    @property
    def bad(self) -> int:
        return sum(self._is_bad(index) for index in range(self.records))

    def __iter__(self) -> Iterator[Order]:
        chance = random.Random(self.seed)  # noqa: S311  (a repeatable flow, not a secret)
        start_ms = self.end_ms - self.span_ms
        newest_ms = [0] * self.partitions
        for index in range(self.records):
            partition = index % self.partitions
            behind_ms = self.lag_ms if partition == self.partitions - 1 else 0
            now_ms = start_ms + index * self.span_ms // self.records - behind_ms
            bad = self._is_bad(index)
            if self._is_late(index):
                lateness_ms = self.window_ms + self.grace_ms + chance.randrange(milliseconds("15 min"))
                timestamp_ms = newest_ms[partition] - lateness_ms
            else:
                timestamp_ms = now_ms - int(self.jitter_ms * chance.random() ** 3)
                newest_ms[partition] = newest_ms[partition] if bad else max(newest_ms[partition], timestamp_ms)
            value = _BAD_VALUES[index // self.bad_every % len(_BAD_VALUES)] if bad else _order(index, chance)
            yield Order(partition=partition, key=b"o-%d" % index, value=value, timestamp_ms=timestamp_ms)

    def _is_late(self, index: int) -> bool:
        """Late ones come in the second half only, so that the windows they missed lie in the flow."""
        planted = index % self.late_every == self.late_every - 1 and index >= self.records // 2
        return planted and not self._is_bad(index)

    def _is_bad(self, index: int) -> bool:
        return index % self.bad_every == self.bad_every // 2

    def produce(self, connection: Connection, topic: Topic) -> None:
        """Write the flow to ``topic``; returns when the broker has acknowledged all of it."""
        producer = connection.producer({"linger.ms": 20, "queue.buffering.max.messages": 500_000})
        for order in self:
            while True:
                try:
                    producer.produce(
                        topic.name, order.value, order.key, partition=order.partition, timestamp=order.timestamp_ms
                    )
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.flush()


def _order(index: int, chance: random.Random) -> bytes:
    """Amounts are log-normal, a few products make most of the sales, some orders come without a region."""
    amount = round(_MEDIAN_AMOUNT * chance.lognormvariate(0.0, _AMOUNT_SPREAD), 2)
    [region] = chance.choices(_REGION_NAMES, cum_weights=_REGION_WEIGHTS)
    customer = int(_CUSTOMERS * chance.random())
    product = int(_PRODUCTS * chance.random() ** 3)
    place = f'"region":"{region}",' if region else ""
    vip = "true" if customer < _VIPS else "false"
    return (
        f'{{"order_id":"o-{index}","customer_id":"c-{customer}","user_id":"u-{customer}","product":"p-{product}",'
        f'{place}"amount":{amount:.2f},"status":"{_STATUSES[index % 3]}","vip":{vip}}}'
    ).encode()
