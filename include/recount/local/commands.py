"""``recount up``, ``recount status``, ``recount down``: the embedded profile from the command line."""

from __future__ import annotations

import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import psutil
import typer
from rich.console import Console

from recount.core.quantities import quantity
from recount.core.registry import declared
from recount.kafka.security_place import VARIABLE
from recount.local import daemon
from recount.local.daemon import Daemon
from recount.local.home import Home
from recount.local.paused_dags import what_to_switch_on
from recount.local.profile import Profile, end_profile
from recount.local.project import Project
from recount.local.running import Running

_console = Console(highlight=False, soft_wrap=True)


def up(
    brokers: Annotated[int, typer.Option(help="1, or 3 for a replicated cluster with min.insync.replicas 2")] = 1,
    spark: Annotated[
        Literal["local", "cluster"], typer.Option(help="Spark in each driver, or a standalone master and worker")
    ] = "local",
    airflow: Annotated[bool, typer.Option(help="start Airflow as well")] = True,
    secure: Annotated[bool, typer.Option("--secure", help="Kafka with TLS, passwords and ACLs")] = False,
) -> None:
    """Start the embedded profile and leave it running; what runs of it already goes on."""
    project = Project.containing(Path.cwd())
    home = Home.of(project.root)
    with home.locked():
        running = Running.read(home)
        if running and all(process.alive for process in daemon.recorded(home)):
            _console.print("already up (another shape needs `recount down` first)")
        elif running and running.ports:
            profile = Profile.of(running, home, project)
            if profile.shape != (brokers, spark, airflow, secure):
                _console.print("it keeps the shape in which it was started (another needs `recount down` first)")
            profile.resume(report=_console.print)
        else:
            _start(Profile(home=home, project=project, brokers=brokers, spark=spark, airflow=airflow, secure=secure))
    status()


def _start(profile: Profile) -> None:
    # A SIGTERM shall clean up as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    new = profile.airflow is not None and not profile.airflow.has_password
    profile.start(report=_console.print)
    if profile.airflow and new:
        _console.print(f"\n{what_to_switch_on(declared(profile.settings.topologies))}", markup=False)
        _console.print(
            f"\nAirflow user [bold]{profile.airflow.username}[/], password [bold]{profile.airflow.password}[/]"
            f"  (shown once; kept in {profile.airflow.password_file})\n"
        )


def status() -> None:
    """Show what runs, where, and where its logs are. Exit code 1 when something that should run does not."""
    home = Home.of(Project.containing(Path.cwd()).root)
    running = Running.read(home)
    processes = [*daemon.recorded(home), *daemon.drivers(home)]
    if running is None and not processes:
        _console.print("nothing runs; start with: make up (or recount up)")
        raise typer.Exit(1)
    if running:
        keys = running.settings.get(VARIABLE)
        _console.print(f"Kafka    {running.bootstrap_servers}" + (f"  secured, keys {keys}" if keys else ""))
        _console.print(
            f"Spark    {running.spark_master}" + (f"  page {running.spark_url}" if running.spark_url else "")
        )
        _console.print(f"Airflow  {running.airflow_url or 'not started'}")
    for process in processes:
        _console.print(_line(process))
    if running is None or not all(process.alive for process in processes):
        raise typer.Exit(1)


def down(
    delete: Annotated[bool, typer.Option("--delete", help="also delete topics, tables, history and logs")] = False,
) -> None:
    """Stop everything the embedded profile started, stream drivers too."""
    home = Home.of(Project.containing(Path.cwd()).root)
    with home.locked():
        ended = end_profile(home)
    _console.print(f"stopped {quantity(ended, 'process', 'processes')}" if ended else "nothing was running")
    if delete:
        home.delete()
        _console.print(f"deleted {home.path}")


def _line(process: Daemon) -> str:
    since = datetime.fromtimestamp(process.started, UTC).strftime("%Y-%m-%d %H:%M:%S")
    state = f"up     {_memory_mib(process):5} MiB" if process.alive else "ENDED           "
    return f"{process.name:22} {state}  pid {process.pid:<8} since {since} UTC  {process.log}"


def _memory_mib(process: Daemon) -> int:
    try:
        return int(psutil.Process(process.pid).memory_info().rss) >> 20
    except psutil.NoSuchProcess:
        return 0
