"""``make play``: records for all of the shop's topics, while every stream of it runs in Airflow."""

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Annotated, Any, Self

import typer
from examples.shop.running_shop import RunningShop, ShopSource
from examples.shop.shop_records import Pace, ShopFlow
from rich.console import Console

from recount.declare.limits import Health
from recount.kafka.status import StreamStatus
from recount.profile.home import Home, Project
from recount.runtime.errors import Terminal, Transient
from recount.runtime.times import quantity, roughly

_LOWEST_RATE, _HIGHEST_RATE = 1, 10_000
_SHORTEST_S = 1
_FAULTS = {"late": "too late", "bad": "bad", "tombstone": "tombstones"}
_console = Console(highlight=False, soft_wrap=True)
AFTER_S = 360
"""By then a window of five minutes has been closed, and its results can be judged."""
_SILENT_MS = Health().heartbeat_age_ms


def play(
    rate: Annotated[float, typer.Option(help="Records a second over all topics, bursts included.")] = 100,
    minutes: Annotated[float | None, typer.Option(help="How long; without it until Ctrl-C.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed sends the same records.")] = 20,
    every: Annotated[float, typer.Option(help="Seconds between two lines.")] = 10,
) -> None:
    """Let the shop live: every stream runs in Airflow, and records of all its topics come, some late or bad."""
    _require("--rate", rate, _LOWEST_RATE, _HIGHEST_RATE, "records a second")
    _require("--every", every, _SHORTEST_S, float("inf"), "seconds")
    if minutes is not None:
        _require("--minutes", minutes, 0, float("inf"), "minutes")
    shop = RunningShop.in_home(Home.of(Project.containing(Path.cwd()).root))
    shop.create_topics()
    shop.switch_on()
    with _interrupted() as over:
        _console.print(f"{quantity(len(shop.declarations.streams), 'stream')} switched on; Airflow: {shop.airflow.url}")
        _console.print(f"about {rate:g} records/s to {', '.join(shop.partitions)}; Ctrl-C ends it")
        flow = ShopFlow(partitions=shop.partitions, begin_ms=_now_ms(), pace=Pace(rate=rate), seed=seed)
        with ShopSource(shop.connection.producer({"linger.ms": 50}), flow) as source:
            first = FirstAudit(shop=shop, begun_s=time.monotonic())
            if first.stream is not None:
                _console.print(f"audits are made at night; that of {first.stream} after {roughly(AFTER_S * 1_000)} too")
            for line in _lines(shop, source, over, every_s=every, minutes=minutes):
                _console.print(line)
                for news in first.news(time.monotonic()):
                    _console.print(news)
        source.require_well()
    planted = ", ".join(f"{source.faults[fault]:,} {name}" for fault, name in _FAULTS.items())
    _console.print(f"{quantity(source.sent, 'record')} sent: {planted}")
    _console.print("the streams go on; stop them with: make down")


def _lines(
    shop: RunningShop, source: ShopSource, over: Event, *, every_s: float, minutes: float | None
) -> Iterator[str]:
    """A line ``every_s`` until the time is over, or somebody interrupts; raises what is wrong with the records."""
    begun_s = last_s = due_s = time.monotonic()
    end_s = float("inf") if minutes is None else begun_s + 60 * minutes
    produced = 0
    while not over.is_set() and time.monotonic() < end_s:
        # a line that took long to ask for is not made up for
        due_s = min(max(due_s + every_s, last_s), end_s)
        over.wait(max(0.0, due_s - time.monotonic()))
        source.require_well()
        now_s, before = time.monotonic(), produced
        produced = source.sent
        try:
            statuses = shop.statuses()
        except Transient as error:
            yield f"{now_s - begun_s:5.0f} s  produced {produced:,}  no statuses: {error.what}"
        else:
            yield Progress.of(
                statuses,
                shop.declarations.streams,
                now_ms=_now_ms(),
                seconds=now_s - begun_s,
                produced=produced,
                rate=(produced - before) / (now_s - last_s),
            ).line()
        last_s = now_s


@contextmanager
def _interrupted() -> Iterator[Event]:
    """Set by the first Ctrl-C or SIGTERM; the second one ends the program at once."""
    over, former = Event(), dict[int, Any]()

    def end(number: int, _: object) -> None:
        over.set()
        signal.signal(number, former[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        former[number] = signal.signal(number, end)
    try:
        yield over
    finally:
        for changed, handler in former.items():
            signal.signal(changed, handler)


def _require(option: str, given: float, least: float, most: float, unit: str) -> None:
    """Raise ``Terminal`` unless ``given`` lies between two bounds; what is not a number does not."""
    if least <= given <= most and given > 0:
        return
    bounds = f"more than {least:g}" if not least else f"at least {least:g}"
    raise Terminal(
        f"{option} cannot be that",
        given=given,
        expected=f"{bounds} {unit}" + (f", at most {most:,g}" if most < float("inf") else ""),
        remedy=f"leave it out, or give another: recount play {option} NUMBER",
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(kw_only=True)
class FirstAudit:
    """Of ``shop``, once it has been played for ``AFTER_S`` since ``begun_s``; ``stream`` None: nothing to audit."""

    shop: RunningShop
    begun_s: float
    stream: str | None = field(init=False)
    has_begun: bool = False

    def __post_init__(self) -> None:
        self.stream = self.shop.audited_first

    def news(self, now_s: float) -> Iterator[str]:
        """Start it when it is due, and say so; where Airflow does not answer it is tried again at the next call."""
        if self.stream is None or self.has_begun or now_s - self.begun_s < AFTER_S:
            return
        try:
            self.shop.audit_now(self.stream)
        except Transient as error:
            yield f"the audit of {self.stream} could not be started, it is tried again: {error.what}"
            return
        self.has_begun = True
        yield f"the audit of {self.stream} has begun: its certificate comes to the stream's page, Browse > Recount"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """``rate`` is in records a second since the line before. ``lag`` is that of ``behind``, which is furthest behind.

    ``late`` and ``dead_letters`` are those of all streams, each since its driver started: a record that is late for
    five streams counts five times.
    """

    seconds: float
    produced: int
    rate: float
    running: int
    streams: int
    behind: str | None
    lag: int
    late: int
    dead_letters: int

    @classmethod
    def of(
        cls,
        statuses: Mapping[str, StreamStatus],
        streams: Collection[str],
        *,
        now_ms: int,
        seconds: float,
        produced: int,
        rate: float,
    ) -> Self:
        """What the last ``statuses`` say of ``streams``; one whose driver has been silent does not run."""
        said = {name: statuses[name] for name in streams if name in statuses}
        running = [one for one in said.values() if one.state == "running" and now_ms - one.heartbeat_ms <= _SILENT_MS]
        behind = max(said.values(), key=lambda one: one.lag or 0, default=None)
        return cls(
            seconds=seconds,
            produced=produced,
            rate=rate,
            running=len(running),
            streams=len(streams),
            behind=behind.stream if behind and behind.lag else None,
            lag=behind.lag or 0 if behind else 0,
            late=sum(one.late_records for one in said.values()),
            dead_letters=sum(one.dead_letters for one in said.values()),
        )

    def line(self) -> str:
        """All of it in one line."""
        behind = f"lag {self.lag:,} ({self.behind})" if self.behind else "lag 0"
        return (
            f"{self.seconds:5.0f} s  produced {self.produced:,}, {self.rate:,.0f}/s  "
            f"running {self.running} of {self.streams}  {behind}  late {self.late:,}  "
            f"dead letters {self.dead_letters:,}"
        )
