"""The embedded profile: Kafka, Spark and Airflow of one home, started and stopped together."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Literal, Self

from recount.core.quantities import quantity
from recount.core.registry import declared
from recount.core.settings import Settings
from recount.kafka.acls import acls_of
from recount.kafka.connection import Connection
from recount.kafka.security_place import VARIABLE
from recount.local import daemon
from recount.local.airflow import AUDIT_POOL, EmbeddedAirflow
from recount.local.home import Home
from recount.local.kafka import EmbeddedKafka
from recount.local.permits import permit
from recount.local.project import Project
from recount.local.running import Running
from recount.local.spark import EmbeddedSpark


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
    """End every process of ``home``, whoever started it, drivers too; returns how many there were."""
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
        """The ``RECOUNT_`` variables of every task, driver and command."""
        return {**self.settings.to_environment(), "RECOUNT_HOME": str(self.home.path)}

    def start(self, report: Callable[[str], None] = lambda _: None) -> None:
        """Start everything, after ending what a crash of an earlier profile of this home left behind.

        ``report`` is told each step. On any failure, or when interrupted, nothing is left running.
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
        """End every process of the home."""
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
