"""A real Spark standalone cluster, one master and one worker, from the jars PySpark carries."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import pyspark

from recount.core.errors import Transient
from recount.local import daemon
from recount.local.daemon import Daemon
from recount.local.home import Home
from recount.local.ports import LOOPBACK, free_ports
from recount.local.started import Started

_START_LIMIT_S = 60.0


class EmbeddedSpark(Started):
    """A master and a worker on the loopback address. A context manager: started on entry, stopped on exit.

    The worker offers more cores than a small machine has, and an application gets two of them: three applications
    (two streams and an audit, say) run side by side, where the first would otherwise take all.
    """

    def __init__(self, *, home: Home) -> None:
        self._home = home
        self._port, self._page_port, self._worker_port, self._worker_page_port = free_ports(4)
        self._daemons: list[Daemon] = []

    @property
    def master(self) -> str:
        """What ``--master`` takes."""
        return f"spark://{LOOPBACK}:{self._port}"

    @property
    def url(self) -> str:
        """The master's page."""
        return f"http://{LOOPBACK}:{self._page_port}"

    def start(self) -> None:
        """Start both; returns when the worker has registered with the master."""
        self._home.create()
        work = self._home.spark / "work"
        work.mkdir(parents=True, exist_ok=True)
        self._launch("master", "--port", str(self._port), "--webui-port", str(self._page_port))
        self._wait(self._port, "spark-master")
        size = ("--cores", "6", "--memory", "4g", "--work-dir", str(work))
        ports = ("--port", str(self._worker_port), "--webui-port", str(self._worker_page_port))
        self._launch("worker", *size, *ports, self.master)
        self._wait(self._worker_page_port, "spark-worker")

    def stop(self) -> None:
        """Stop the worker with its executors, and the master."""
        daemon.stop(self._home, self._daemons, patience_s=10)
        self._daemons.clear()

    def _launch(self, role: str, *arguments: str) -> None:
        spark_home = Path(pyspark.__file__).parent
        command: list[str | Path] = [
            spark_home / "bin" / "spark-class",
            f"org.apache.spark.deploy.{role}.{role.capitalize()}",
            "--host",
            LOOPBACK,
            *arguments,
        ]
        environment = {
            **os.environ,
            "SPARK_HOME": str(spark_home),
            "SPARK_DAEMON_MEMORY": "384m",
            "SPARK_MASTER_OPTS": "-Dspark.deploy.defaultCores=2",
            "SPARK_LOCAL_DIRS": str(self._home.spark / "scratch"),
            "PYSPARK_PYTHON": sys.executable,
        }
        self._daemons.append(Daemon.start(self._home, f"spark-{role}", command, environment))

    def _wait(self, port: int, name: str) -> None:
        deadline = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < deadline:
            self._daemons[-1].require_alive()
            with socket.socket() as probe:
                if probe.connect_ex((LOOPBACK, port)) == 0:
                    return
            time.sleep(0.2)
        raise Transient(
            f"{name} did not come up in time",
            given=daemon.end_of(self._home.logs / f"{name}.log"),
            expected=f"port {port} open within {_START_LIMIT_S:.0f} s",
            remedy="read its log; another heavy process may be using the machine",
        )
