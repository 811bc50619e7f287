"""A job of spark_jobs/ as a process of its own, submitted to a Spark master: a driver or an audit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyspark

from recount.profile.daemon import end_of
from recount.profile.home import Project
from recount.runtime.settings import Settings

_SPARK_HOME = Path(pyspark.__file__).parent
_HEAP = "512m"
_CONFIGURATION = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # an executor on each worker, which have room for all applications, and for those that are held up
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": _HEAP,
    "spark.python.worker.reuse": "true",
}
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A driver lives for a minute or two: the JVM's optimising compiler would take longer than what it compiles for."""
_WHAT_ENDED_IT = re.compile(r"^[\w.]*(?:Terminal|Transient|Fenced|Error|Exception)\b.*", re.MULTILINE)


class Submitted:
    """A submitted job: Python and its JVM are one process group, its output is in ``log``."""

    def __init__(self, job: str, arguments: Sequence[str], *, master: str, settings: Settings, log: Path) -> None:
        project = Project.containing(Path(__file__).parent)
        jars = ",".join(sorted(str(jar) for jar in Path(settings.jars).glob("*.jar")))
        environment = {
            **os.environ,
            **settings.to_environment(),
            "SPARK_HOME": str(_SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": f"{settings.run}/scratch",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": f"{project.root}:{project.root / 'include'}",
            "JAVA_TOOL_OPTIONS": _SHORT_LIVED,
            "COLUMNS": "200",
        }
        command = [
            *(f"{_SPARK_HOME}/bin/spark-submit", "--master", master, "--jars", jars, "--driver-memory", _HEAP),
            *(word for name, value in _CONFIGURATION.items() for word in ("--conf", f"{name}={value}")),
            *(str(project.spark_jobs / job), *arguments),
        ]
        self.log = log
        self.began_ms = time.time_ns() // 1_000_000
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=project.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    @property
    def age_s(self) -> float:
        """How long ago it was started."""
        return time.time_ns() / 1e9 - self.began_ms / 1e3

    def send(self, number: signal.Signals) -> None:
        """A signal to the whole process group."""
        if self.code is None:
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """kill -9, also while it is held up; returns when it is gone."""
        self.send(signal.SIGKILL)
        self._process.wait(30)

    def last_words(self) -> str:
        """What its log says at the end about why it ended."""
        said = _WHAT_ENDED_IT.findall(end_of(self.log, 60))
        return said[-1][:300] if said else end_of(self.log, 1)[:300]
