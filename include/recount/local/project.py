"""The checkout the embedded profile runs from: where its DAGs, jobs and fetched jars are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from recount.core.errors import Terminal


@dataclass(frozen=True, kw_only=True)
class Project:
    """A checkout of Recount, known by the two files that only its root holds."""

    root: Path

    @classmethod
    def containing(cls, folder: Path) -> Project:
        """The project that ``folder`` lies in; ``Terminal`` when it lies in none."""
        for candidate in (folder.resolve(), *folder.resolve().parents):
            if (candidate / "pom.xml").is_file() and (candidate / "spark_jobs").is_dir():
                return cls(root=candidate)
        raise Terminal(
            "the embedded profile runs from a checkout of Recount, and here is none",
            given=str(folder),
            expected="a folder in the checkout",
            remedy="change into the checkout and call again",
        )

    @property
    def dags(self) -> Path:
        return self.root / "dags"

    @property
    def spark_jobs(self) -> Path:
        return self.root / "spark_jobs"

    @property
    def spark_jars(self) -> Path:
        """Folder of the jars a Spark application needs."""
        return self._fetched(self.root / ".cache" / "jars" / "spark")

    @property
    def kafka_jars(self) -> Path:
        """Folder of the jars of the broker, apart from Spark's: each set has its own kafka-clients."""
        return self._fetched(self.root / ".cache" / "jars" / "kafka")

    @staticmethod
    def _fetched(folder: Path) -> Path:
        if not any(folder.glob("*.jar")):
            raise Terminal(
                "jars are missing", given=str(folder), expected="a folder with jars", remedy="run: make setup"
            )
        return folder
