"""Every mutant in turn in a copy of the package: what the stream says then, and who notices.

Started by ``python -m tests.mutants`` with the copy at the front of ``PYTHONPATH``. One Spark lasts for all mutants.
What is imported is forgotten between two of them, by this process and, because Spark's Python workers are used once,
by the tasks. The recompute cannot import the engine (`tests/unit/test_import_boundaries.py`) and reaches none of the
functions of ``declare`` that have a mutant (``guard``), so it would say the same with each of these mutants: what it
says of a scene is kept. With a mutant that no guard can stand before, of a class or module, it computes anew.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from polars.exceptions import PanicException
from tests.mutants.guard import can_be_guarded, guard, recompute_at_work
from tests.mutants.mutant import Mutant
from tests.mutants.schemas import SCHEMAS
from tests.unit.formats.served_registry import served

_EVERYTHING = ("recount", "tests.unit", "tests.spark", "tests.mutants.scene", "tests.mutants.runs")
_ENGINE = (
    *("recount.engine", "recount.formats"),
    *("tests.unit.engine.engine", "tests.unit.engine.topology_", "tests.mutants.runs", "tests.mutants.scene"),
)


class Trial:
    """Tries mutants against what the recompute says of each scene without any."""

    def __init__(self, package: Path, spark: Any) -> None:
        self._package, self._spark = package, spark
        self._expected: dict[Any, Any] = {}
        self._fingerprints: dict[str, str] = {}

    def unharmed(self, name: str) -> list[str]:
        """Where in the scene ``name`` the three do not agree without a mutant: there must be no difference."""
        scenes, runs = _imported()
        scene = scenes.scene(name)
        self._fingerprints[name] = runs.fingerprint_of(scene)
        run = runs.by_engine(scene)
        expected = self._recomputed(runs, scene, run)
        wrong = [f"{name}: {part}" for part in runs.differences(run.told, expected)]
        if scene.is_interpreted and not scene.falls_back:
            reference = runs.by_interpreter(scene)
            wrong += [f"{name}, interpreter: {part}" for part in runs.differences(reference, expected)]
        return wrong

    def tried(self, mutant: Mutant, names: Sequence[str]) -> dict[str, Any]:
        """The first of the scenes ``names`` whose audit is red, and in what.

        ``caught_by`` has the interpreter where it differs too. ``wrong``: without the mutant a scene is not as it must.
        """
        found: dict[str, Any] = {"scene": "", "parts": [], "caught_by": []}
        for name in names:
            if name not in self._fingerprints and (wrong := self.unharmed(name)):
                return {"wrong": wrong}
            found = self._tried(mutant, name)
            if found["caught_by"]:
                break
        return found

    def _tried(self, mutant: Mutant, name: str) -> dict[str, Any]:
        file = self._package / mutant.file
        source = file.read_text()
        file.write_text(mutant.apply(source))
        _forget(_EVERYTHING if mutant.is_shared else _ENGINE)
        try:
            return self._caught(name, anew=mutant.is_shared and not can_be_guarded(mutant))
        except (Exception, PanicException) as error:
            # a stream that stops has nothing that an audit could judge
            return {"scene": "", "parts": [f"{type(error).__name__}: {str(error)[:200]}"], "caught_by": []}
        finally:
            file.write_text(source)
            _forget(_EVERYTHING if mutant.is_shared else _ENGINE)

    def _caught(self, name: str, *, anew: bool) -> dict[str, Any]:
        scenes, runs = _imported()
        scene = scenes.scene(name)
        redeclared = runs.fingerprint_of(scene) != self._fingerprints[name]
        run = runs.by_engine(scene)
        expected = self._recomputed(runs, scene, run)
        if anew and (redeclared or runs.differences(run.told, expected)):
            expected = runs.by_recompute(self._spark, scene, run.ledger)
        parts = runs.differences(run.told, expected) + ["declaration"] * redeclared
        if not parts:
            return {"scene": "", "parts": [], "caught_by": []}
        seen = scene.is_interpreted and self._is_seen(runs, scene, run, expected)
        return {"scene": name, "parts": parts, "caught_by": ["audit", *(["interpreter"] if seen else [])]}

    def _is_seen(self, runs: Any, scene: Any, run: Any, expected: Any) -> bool:
        """Whether the interpreter differs too."""
        reference = replace(runs.by_interpreter(scene), held_after_ms=expected.held_after_ms)
        return bool(runs.differences(run.told, reference))

    def _recomputed(self, runs: Any, scene: Any, run: Any) -> Any:
        """What the recompute says without a mutant to the same log and reading of it."""
        asked = scene.name, run.reading
        if asked not in self._expected:
            with recompute_at_work(self._package):
                self._expected[asked] = runs.by_recompute(self._spark, scene, run.ledger)
        return self._expected[asked]


def _imported() -> tuple[Any, Any]:
    return importlib.import_module("tests.mutants.scenes"), importlib.import_module("tests.mutants.runs")


def _forget(modules: tuple[str, ...]) -> None:
    for name in [name for name in sys.modules if name.startswith(modules)]:
        del sys.modules[name]
    importlib.invalidate_caches()


@contextmanager
def registry_at_work() -> Iterator[None]:
    """A registry with the schemas of all scenes, of which processes that are started within it know."""
    with served(SCHEMAS) as registry:
        os.environ["RECOUNT_SCHEMA_REGISTRY"] = registry.address
        yield


@contextmanager
def small_spark(scratch: Path, jars: str) -> Iterator[Any]:
    """Spark for a hundred records at a time, whose Python workers are used once."""
    from pyspark.sql import SparkSession

    from recount.tables.spark_session import session_configuration

    configuration = {
        **session_configuration(jars),
        "spark.master": "local[1]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(scratch / "local"),
        "spark.python.worker.reuse": "false",
        "spark.python.daemon.module": "tests.mutants.worker_daemon",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
    }
    session = SparkSession.builder.config(map=configuration).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


def main() -> None:
    """A list of mutants as JSON on standard input; on standard output a line of JSON for each."""
    package = Path(sys.argv[1])
    sys.dont_write_bytecode = True
    with registry_at_work(), small_spark(package.parent, sys.argv[2]) as spark:
        chosen = [(Mutant(**one), first) for one, first in json.loads(sys.stdin.readline())]
        guard(package, [mutant for mutant, _ in chosen])
        trial, names = Trial(package, spark), _imported()[0].names()
        for mutant, first in chosen:
            began = time.monotonic()
            found = trial.tried(mutant, sorted(names, key=lambda name, first=first: name != first))
            print(json.dumps({**found, "seconds": time.monotonic() - began}), flush=True)
            if "wrong" in found:
                break


if __name__ == "__main__":
    main()
