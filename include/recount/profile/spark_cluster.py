"""A real Spark standalone cluster, a master and its workers, of the Spark that spark-submit takes, too."""

import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyspark

from recount.profile import daemon
from recount.profile.daemon import LOOPBACK, Daemon, Started, free_ports, require_free
from recount.profile.home import Home
from recount.runtime.errors import Transient, require
from recount.runtime.installation import write_secret
from recount.tables.spark_session import new_security

_MASTER = "spark-master"
_START_LIMIT_S = 60.0


class EmbeddedSpark(Started):
    """A master and ``workers`` on the loopback address, each with ``cores`` and ``memory`` for executors.

    An application gets two cores, and the worker of the embedded profile offers more than a small machine has: three
    applications (two streams and an audit, say) run side by side, where the first would otherwise take all.
    It takes drivers that have its secret, and no others; what it sends and spills is encrypted.
    A context manager: started on entry, stopped on exit. ``ports`` are those of a cluster that an earlier object of
    this home has started.
    """

    def __init__(
        self, *, home: Home, workers: int = 1, cores: int = 6, memory: str = "4g", ports: Sequence[int] = ()
    ) -> None:
        require(workers > 0, "workers-none", given=workers)
        self._home = home
        self._size = ("--cores", str(cores), "--memory", memory)
        self.ports = list(ports) or free_ports(2 + 2 * workers)
        self._port, self._page_port, *of_workers = self.ports
        self._worker_ports = dict(enumerate(zip(of_workers[::2], of_workers[1::2], strict=True), start=1))
        self._daemons: dict[str, Daemon] = {}

    @property
    def master(self) -> str:
        return f"spark://{LOOPBACK}:{self._port}"

    @property
    def security(self) -> str:
        """Where drivers find what the cluster knows them by, as RECOUNT_SPARK_SECURITY says it."""
        return str(self._home.spark_security)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._page_port}"

    def start(self) -> None:
        """Start what does not run; returns when the master and every worker serve."""
        self._home.create()
        if not self._home.spark_security.exists():
            write_secret(self._home.spark_security, new_security())
        self._launch(_MASTER, "Master", "--port", str(self._port), "--webui-port", str(self._page_port))
        self._wait(_MASTER, self._port)
        for number, (port, page_port) in self._worker_ports.items():
            work = self._home.spark / f"work-{number}"
            work.mkdir(parents=True, exist_ok=True)
            ports = ("--port", str(port), "--webui-port", str(page_port))
            self._launch(_worker(number), "Worker", *self._size, "--work-dir", str(work), *ports, self.master)
        for number, (_, page_port) in self._worker_ports.items():
            self._wait(_worker(number), page_port)

    def adopt(self) -> None:
        """Take over what runs in this home, at the ports that were given."""
        self._daemons = {one.name: one for one in daemon.alive(self._home, "spark-")}
        of_parts = {_MASTER: (self._port, self._page_port)}
        of_parts |= {_worker(number): ports for number, ports in self._worker_ports.items()}
        for name, ports in of_parts.items():
            if name not in self._daemons:
                require_free(ports, name)

    def stop(self) -> None:
        daemon.stop(self._home, self._daemons.values(), patience_s=10)
        self._daemons.clear()

    def kill_worker(self, number: int) -> None:
        """kill -9 to a worker and its executors at once, as when their machine is lost; ``start`` brings it back."""
        if worker := self._daemons.pop(_worker(number), None):
            daemon.stop(self._home, [worker], patience_s=0)

    def _launch(self, name: str, role: str, *arguments: str) -> None:
        if name in self._daemons and self._daemons[name].alive:
            return
        spark_home = Path(os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent))
        command: list[str | Path] = [
            spark_home / "bin" / "spark-class",
            f"org.apache.spark.deploy.{role.lower()}.{role}",
            "--host",
            LOOPBACK,
            "--properties-file",
            self._home.spark_security,
            *arguments,
        ]
        environment = {
            **os.environ,
            "SPARK_HOME": str(spark_home),
            "SPARK_DAEMON_MEMORY": "384m",
            "SPARK_MASTER_OPTS": "-Dspark.deploy.defaultCores=2",
            # its pages too
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_LOCAL_DIRS": str(self._home.spark / "scratch"),
            "PYSPARK_PYTHON": sys.executable,
        }
        self._daemons[name] = Daemon.start(self._home, name, command, environment)

    def _wait(self, name: str, port: int) -> None:
        deadline = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < deadline:
            self._daemons[name].require_alive()
            with socket.socket() as probe:
                if probe.connect_ex((LOOPBACK, port)) == 0:
                    return
            time.sleep(0.2)
        raise Transient.of(
            "spark-not-up",
            given=daemon.end_of(self._home.logs / f"{name}.log"),
            name=name,
            port=port,
            limit_s=_START_LIMIT_S,
        )


def _worker(number: int) -> str:
    return f"spark-worker-{number}"
