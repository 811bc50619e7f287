"""The one folder that holds everything the embedded profile writes, and what a started profile offers.

Every later command reads it, so this module imports next to nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from recount.runtime.errors import Transient


@dataclass(frozen=True, kw_only=True)
class Home:
    """A folder with a fixed inside; deleting it leaves no trace of the profile.

    Two homes never disturb each other: processes, ports, topics and tables of one are unknown to the other.
    """

    path: Path

    @classmethod
    def of(cls, project_root: Path) -> Home:
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
        """The password of Airflow's user, readable by the home's owner only."""
        return self.airflow / "passwords.json"

    @property
    def tables(self) -> Path:
        """Root of the Delta tables."""
        return self.path / "tables"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def reports(self) -> Path:
        """Certificates and Data Docs."""
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
                raise Transient(
                    "another command starts or stops this profile now",
                    given=str(self.path),
                    remedy="wait for it, or use a home of your own: RECOUNT_HOME=/another/folder",
                ) from None
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
    def read(cls, home: Home) -> Running | None:
        """The profile that was started in ``home`` and not stopped since, if there is one."""
        return cls(**json.loads(home.profile.read_text())) if home.profile.exists() else None
