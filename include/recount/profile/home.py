"""The project that commands run from, and the one folder that holds everything the embedded profile writes.

A project has DAGs, jobs, suites and fetched jars. What a started profile offers is read by every later command, so this
module imports next to nothing.
"""

import fcntl
import json
import os
import shutil
import sys
import tomllib
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from recount.runtime.errors import Terminal, Transient


@dataclass(frozen=True, kw_only=True)
class Home:
    """A folder with a fixed inside; deleting it leaves no trace of the profile.

    Two homes never disturb each other: processes, ports, topics and tables of one are unknown to the other.
    """

    path: Path

    @classmethod
    def of(cls, project_root: Path) -> Self:
        """``RECOUNT_HOME``, or ``.recount`` in the checkout."""
        return cls(path=Path(os.environ.get("RECOUNT_HOME", project_root / ".recount")).resolve())

    @property
    def run(self) -> Path:
        """Records of running processes; empty when nothing runs."""
        return self.path / "run"

    @property
    def drivers(self) -> Path:
        """One ``<stream>.json`` per stream driver: ``{"pid": ..., "started": ...}``."""
        return self.run / "drivers"

    @property
    def logs(self) -> Path:
        """One log per process, and ``streams/<stream>.log`` per driver."""
        return self.path / "logs"

    @property
    def kafka(self) -> Path:
        return self.path / "kafka"

    @property
    def kafka_security(self) -> Path:
        """Keys and passwords of the secured broker and its clients; readable by the home's owner only."""
        return self.path / "kafka-security"

    @property
    def spark(self) -> Path:
        return self.path / "spark"

    @property
    def spark_security(self) -> Path:
        """The file by which the Spark cluster and its drivers know each other; readable by the home's owner only."""
        return self.path / "spark-security.properties"

    @property
    def airflow(self) -> Path:
        return self.path / "airflow"

    @property
    def airflow_passwords(self) -> Path:
        return self.airflow / "passwords.json"

    @property
    def tables(self) -> Path:
        return self.path / "tables"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def reports(self) -> Path:
        return self.path / "reports"

    @property
    def keys(self) -> Path:
        """The key that signs certificates, once `recount keys` has made one."""
        return self.path / "keys"

    @property
    def profile(self) -> Path:
        """The file of the running profile (addresses, environment), for commands that come later."""
        return self.path / "profile.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the home for one command that starts or stops processes; ``Transient`` when another one holds it."""
        self.create()
        with (self.path / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Transient.of("profile-busy", given=str(self.path)) from None
            yield

    def create(self) -> None:
        """Make the folders; existing ones keep what they hold. Readable by their owner only."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        for folder in (self.drivers, self.logs / "streams", self.tables, self.checkpoints, self.reports):
            folder.mkdir(parents=True, exist_ok=True)

    def delete(self) -> None:
        """Remove the folder with everything in it. Stop what runs first."""
        shutil.rmtree(self.path, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class Running:
    """Addresses and environment of a started profile, kept in the home for the commands that come after it.

    ``ports`` are by part, for a part that is started again; a profile that an earlier release has started names none.
    """

    bootstrap_servers: str
    spark_master: str
    spark_url: str | None
    airflow_url: str | None
    settings: dict[str, str]
    brokers: int = 1
    ports: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def read(cls, home: Home) -> Self | None:
        """The profile that was started in ``home`` and not stopped since, if there is one."""
        return cls(**json.loads(home.profile.read_text())) if home.profile.exists() else None


TOPOLOGIES = "RECOUNT_TOPOLOGIES"


@dataclass(frozen=True, kw_only=True)
class Project:
    """A folder of DAGs and jobs: one that `recount init` has written, or a checkout of Recount."""

    root: Path

    @classmethod
    def containing(cls, folder: Path) -> Self:
        """The project that contains ``folder``; ``Terminal`` when none does."""
        for candidate in (folder.resolve(), *folder.resolve().parents):
            if (candidate / "dags").is_dir() and (candidate / "spark_jobs").is_dir():
                return cls(root=candidate)
        raise Terminal.of("not-in-a-project", given=str(folder))

    @property
    def dags(self) -> Path:
        return self.root / "dags"

    @property
    def spark_jobs(self) -> Path:
        return self.root / "spark_jobs"

    @property
    def expectations(self) -> Path | None:
        """Folder of its own suites, where it has one."""
        folder = self.root / "expectations"
        return folder if folder.is_dir() else None

    @property
    def jars(self) -> Path:
        """Where `recount jars` puts the sets of jars."""
        return self.root / ".cache" / "jars"

    @property
    def spark_jars(self) -> Path:
        return self._fetched(self.jars / "spark")

    @property
    def kafka_jars(self) -> Path:
        """Folder of the jars of the broker, apart from Spark's: each set has its own kafka-clients."""
        return self._fetched(self.jars / "kafka")

    def join(self, environ: MutableMapping[str, str]) -> None:
        """Take the modules that its pyproject.toml names, ``[tool.recount] topologies``, and find them.

        They are found in the root by this process and by those that get ``environ``. A setting there goes before.
        """
        file = self.root / "pyproject.toml"
        named = tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}
        topologies = named.get("tool", {}).get("recount", {}).get("topologies")
        if topologies is None:
            return
        if not isinstance(topologies, str):
            raise Terminal.of("project-names-no-modules", given=topologies, file=file)
        environ.setdefault(TOPOLOGIES, topologies)
        root = str(self.root)
        if root not in sys.path:
            sys.path.insert(0, root)
        paths = environ.get("PYTHONPATH", "").split(os.pathsep)
        if root not in paths:
            environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, paths)])

    @staticmethod
    def _fetched(folder: Path) -> Path:
        if not any(folder.glob("*.jar")):
            raise Terminal.of("jars-missing", given=str(folder), name=folder.name)
        return folder
