"""The project that commands and the embedded profile run from: where its DAGs, jobs, suites and fetched jars are."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path

from recount.runtime.errors import Terminal

TOPOLOGIES = "RECOUNT_TOPOLOGIES"


@dataclass(frozen=True, kw_only=True)
class Project:
    """A folder of DAGs and jobs: one that `recount init` has written, or a checkout of Recount."""

    root: Path

    @classmethod
    def containing(cls, folder: Path) -> Project:
        """The project that contains ``folder``; ``Terminal`` when none does."""
        for candidate in (folder.resolve(), *folder.resolve().parents):
            if (candidate / "dags").is_dir() and (candidate / "spark_jobs").is_dir():
                return cls(root=candidate)
        raise Terminal(
            "this command works in a project of Recount, and here is none",
            given=str(folder),
            expected="a folder with dags/ and spark_jobs/, or one below it",
            remedy="change into the project, or write one: recount init my-project",
        )

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
        """Folder of the jars a Spark application needs."""
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
            raise Terminal(
                "pyproject.toml names no modules",
                given=topologies,
                expected='[tool.recount] topologies = "my_project.topologies"',
                remedy=f"mend it in {file}",
            )
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
            raise Terminal(
                "jars are missing",
                given=str(folder),
                expected="a folder with jars",
                remedy=f"run: recount jars {folder.name} (in a checkout of Recount: make setup)",
            )
        return folder
