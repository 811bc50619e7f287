"""The demo of one stream: the whole chain on generated orders, in the real Airflow, and whether all of it held."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Protocol

import typer
from rich.console import Console, RenderableType

from recount.profile.demo_steps import DemoOutcome, DemoSteps
from recount.profile.embedded import Profile
from recount.profile.home import Home, Project, Running
from recount.profile.order_flow import TOPOLOGIES, OrderFlow
from recount.runtime.errors import Terminal
from recount.runtime.times import clock_ms, readable

_console = Console(highlight=False, soft_wrap=True)


class Shown(Protocol):
    """The findings of a demo."""

    @property
    def held(self) -> bool:
        """Whether every check held."""
        ...

    def summary(self) -> RenderableType:
        """All checks, and where to look."""
        ...


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
        raise Terminal(
            "a demo is still running",
            given=str(home.path),
            expected="none: a demo starts from nothing",
            remedy=f"stop it: RECOUNT_HOME={home.path} make down",
        )


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
