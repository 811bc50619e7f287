"""The embedded profile: Kafka, Spark and Airflow of one home, started and stopped together by commands.

The commands are ``recount up``, ``recount status`` and ``recount down``.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, Self

import psutil
import typer
from rich.console import Console

from recount.declare.registry import declared
from recount.kafka.acls import acls_of
from recount.kafka.connection import Connection
from recount.kafka.security import VARIABLE
from recount.profile import daemon
from recount.profile.daemon import Daemon
from recount.profile.dag_runs import what_to_switch_on
from recount.profile.embedded_airflow import AUDIT_POOL, EmbeddedAirflow
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Home, Project, Running
from recount.profile.listeners import permit
from recount.profile.spark_cluster import EmbeddedSpark
from recount.runtime.settings import Settings
from recount.runtime.times import quantity

_console = Console(highlight=False, soft_wrap=True)


def embedded_settings(
    home: Home,
    project: Project,
    bootstrap_servers: str,
    *,
    topologies: str | None = None,
    security: str = "",
    spark_security: str = "",
) -> Settings:
    """Settings that keep everything in ``home``; ``topologies`` None: those of the environment, else all there are."""
    return Settings(
        profile="embedded",
        bootstrap_servers=bootstrap_servers,
        data=str(home.tables),
        checkpoints=str(home.checkpoints),
        reports=str(home.reports),
        logs=str(home.logs),
        run=str(home.run),
        jars=str(project.spark_jars),
        topologies=topologies or os.environ.get("RECOUNT_TOPOLOGIES", "topologies"),
        notifiers=os.environ.get("RECOUNT_NOTIFIERS", ""),
        prefix=os.environ.get("RECOUNT_PREFIX") or "recount",
        expectations=os.environ.get("RECOUNT_EXPECTATIONS", str(project.expectations or "")),
        keys=os.environ.get("RECOUNT_KEYS", str(home.keys)),
        audit_pool=AUDIT_POOL,
        kafka_security=security,
        spark_security=spark_security,
        schema_registry=os.environ.get("RECOUNT_SCHEMA_REGISTRY", ""),
    )


def end_profile(home: Home) -> int:
    """End every process of ``home``, whatever started it, drivers too; returns how many there were."""
    home.profile.unlink(missing_ok=True)
    return daemon.sweep(home)


class Profile:
    """Everything Recount needs, on this machine, in one folder. A context manager: started on entry, stopped on exit.

    Stopping ends every process of the home, stream drivers too; topics, tables and Airflow's history stay. ``secure``:
    Kafka lets each role do what the declared streams need, and nobody else do anything. ``running`` is a profile of the
    same shape that was started in the home: its ports and settings stay.
    """

    def __init__(
        self,
        *,
        home: Home,
        project: Project,
        brokers: int = 1,
        spark: Literal["local", "cluster"] = "local",
        airflow: bool = True,
        topologies: str | None = None,
        secure: bool = False,
        running: Running | None = None,
    ) -> None:
        self.home = home
        self.project = project
        ports = running.ports if running else {}
        self.kafka = EmbeddedKafka(
            home=home, project=project, brokers=brokers, secure=secure, ports=ports.get("kafka", ())
        )
        self.spark = EmbeddedSpark(home=home, ports=ports.get("spark", ())) if spark == "cluster" else None
        self.settings = (
            Settings.from_environment(running.settings)
            if running
            else embedded_settings(
                home,
                project,
                self.kafka.bootstrap_servers,
                topologies=topologies,
                security=self.kafka.security,
                spark_security=self.spark.security if self.spark else "",
            )
        )
        self.airflow = (
            EmbeddedAirflow(
                home=home,
                project=project,
                environment=self.environment,
                spark_master=self.spark_master,
                ports=ports.get("airflow", ()),
            )
            if airflow
            else None
        )

    @classmethod
    def of(cls, running: Running, home: Home, project: Project) -> Self:
        """The profile that was started in ``home``, whatever of it runs."""
        return cls(
            home=home,
            project=project,
            brokers=running.brokers,
            spark="cluster" if running.spark_url else "local",
            airflow=running.airflow_url is not None,
            secure=bool(running.settings.get(VARIABLE)),
            running=running,
        )

    @property
    def shape(self) -> tuple[int, str, bool, bool]:
        """Brokers, Spark, whether there is Airflow, and whether Kafka is secured."""
        spark = "cluster" if self.spark else "local"
        return self.kafka.brokers, spark, self.airflow is not None, bool(self.kafka.security)

    @property
    def spark_master(self) -> str:
        return self.spark.master if self.spark else "local[*]"

    @property
    def environment(self) -> dict[str, str]:
        return {**self.settings.to_environment(), "RECOUNT_HOME": str(self.home.path)}

    def start(self, report: Callable[[str], None] = lambda _: None) -> None:
        """Start everything, after ending what a crash of an earlier profile of this home left behind.

        ``report`` is called at each step. On any failure, or when interrupted, nothing is left running.
        """
        try:
            if survivors := end_profile(self.home):
                report(f"ended {quantity(survivors, 'process', 'processes')} that an earlier profile left behind")
            self._start(report)
        except BaseException:
            self.stop()
            raise

    def resume(self, report: Callable[[str], None] = lambda _: None) -> None:
        """Start the parts that have ended, each at its ports; what runs is left alone, whatever comes of it."""
        parts = [part for part in (self.kafka, self.spark, self.airflow) if part]
        for part in parts:
            part.adopt()
        for ended in (one for one in daemon.recorded(self.home) if not one.alive):
            report(f"{ended.name} has ended: it is started again at its port, the other parts go on")
        self._start(lambda _: None)

    def _start(self, report: Callable[[str], None]) -> None:
        report(f"starting Kafka ({quantity(self.kafka.brokers, 'broker')})")
        self.kafka.start()
        if self.kafka.security:
            report("allowing each role what the declared streams need, and nothing else")
            self._permit()
        if self.spark:
            report("starting Spark (master and worker)")
            self.spark.start()
        if self.airflow:
            report("starting Airflow")
            self.airflow.start()
        self.home.profile.write_text(json.dumps(asdict(self._running())))

    def stop(self) -> None:
        end_profile(self.home)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _permit(self) -> None:
        named = Connection(bootstrap_servers=self.kafka.bootstrap_servers, prefix=self.settings.prefix)
        needed = acls_of(declared(self.settings.topologies), named, self.settings.profile)
        permit(self.kafka.listeners.keeper(), needed)

    def _running(self) -> Running:
        return Running(
            bootstrap_servers=self.kafka.bootstrap_servers,
            spark_master=self.spark_master,
            spark_url=self.spark.url if self.spark else None,
            airflow_url=self.airflow.url if self.airflow else None,
            settings=self.environment,
            brokers=self.kafka.brokers,
            ports={
                "kafka": self.kafka.listeners.ports,
                "spark": self.spark.ports if self.spark else [],
                "airflow": self.airflow.ports if self.airflow else [],
            },
        )


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
