"""Where a stream of the scale and soak runs lives: brokers and Spark of its own, on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from bench.cluster import Cluster
from bench.jobs import Job
from bench.running import Program
from recount.kafka.connection import Connection
from recount.profile import daemon
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Home, Project
from recount.profile.spark_cluster import EmbeddedSpark

_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
_WORKER_HEAP = "1g"
_SPARK_HOME = Path(pyspark.__file__).parent
_ENVIRONMENT = {"SPARK_HOME": _SPARK_HOME, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
"""Without it spark-submit looks for Spark and Python on the path, and listens on the machine's own address."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How many brokers, and how many Spark workers of one core; without workers Spark is ``local[2]``."""

    name: str
    brokers: int
    workers: int


EMBEDDED = Shape(name="one broker, local[2]", brokers=1, workers=0)
CLUSTER = Shape(name="three brokers, two workers", brokers=3, workers=2)


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A running ``shape`` that nobody else uses; ``spark`` is None where Spark runs in each driver."""

    shape: Shape
    project: Project
    home: Home
    kafka: EmbeddedKafka
    spark: EmbeddedSpark | None

    @property
    def connection(self) -> Connection:
        """To its brokers."""
        return Connection(bootstrap_servers=self.kafka.bootstrap_servers)

    @property
    def topics(self) -> Cluster:
        """Its topics."""
        return Cluster(home=self.home, connection=self.connection)

    @property
    def daemons(self) -> list[int]:
        """The processes of Kafka and Spark."""
        return [each.pid for each in daemon.recorded(self.home)]

    def folder(self, stream: str) -> Path:
        """Where ``stream`` keeps all that it writes."""
        return self.home.path / stream

    def data(self, stream: str) -> str:
        """The root of the tables of ``stream``."""
        return f"{self.folder(stream)}/tables"

    def checkpoint(self, stream: str) -> Path:
        """The folder of Spark's checkpoint of ``stream``."""
        return self.folder(stream) / "checkpoints" / stream

    def started(
        self, stream: str, job: Job, topic: str, *, max_offsets: int, heap: str = "2g", **pairs: object
    ) -> Program:
        """``bench.stream_program``, submitted in client mode; its output topics begin with ``<stream>-results``."""
        self.topics.create(job.outputs(f"{stream}-results"))
        jars = ",".join(sorted(str(jar) for jar in self.project.spark_jars.glob("*.jar")))
        given = {
            "bootstrap": self.connection.bootstrap_servers,
            "job": job.name,
            "topic": topic,
            "output": f"{stream}-results",
            "application": stream,
            "state": self.folder(stream),
            "jars": self.project.spark_jars,
            "max-offsets": max_offsets,
            "log": self.log(stream),
            "spark-security": self.spark.security if self.spark else "",
            **pairs,
        }
        command = [
            *("env", *(f"{name}={value}" for name, value in _ENVIRONMENT.items())),
            *(f"{_SPARK_HOME}/bin/spark-submit", "--master", self._master, "--jars", jars),
            *("--driver-memory", heap, "--executor-memory", _WORKER_HEAP),
            *(word for name, value in _LOOPBACK.items() for word in ("--conf", f"{name}={value}")),
            str(self.project.root / "bench" / "stream_program.py"),
            *(f"{name}={value}" for name, value in given.items()),
        ]
        return Program(command, self.project.root, self.log(stream))

    def log(self, stream: str) -> Path:
        """What the driver of ``stream`` said."""
        return self.home.path.parent / f"{stream}.log"

    @property
    def _master(self) -> str:
        return self.spark.master if self.spark else "local[2]"


@contextmanager
def deployed(shape: Shape, folder: Path, project: Project) -> Iterator[Deployment]:
    """A deployment in ``folder``, stopped and removed in the end; the logs of its drivers stay."""
    home = Home(path=folder / f"{shape.brokers}-{shape.workers}")
    with ExitStack() as stack:
        stack.callback(home.delete)
        kafka = stack.enter_context(EmbeddedKafka(home=home, project=project, brokers=shape.brokers))
        spark = None
        if shape.workers:
            spark = stack.enter_context(EmbeddedSpark(home=home, workers=shape.workers, cores=1, memory=_WORKER_HEAP))
        yield Deployment(shape=shape, project=project, home=home, kafka=kafka, spark=spark)
