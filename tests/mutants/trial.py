"""Every mutant in turn in a copy of the package: what the stream says then, and who notices.

Started by ``python -m tests.mutants`` with the copy at the front of ``PYTHONPATH``. One Spark lasts for all mutants.
What is imported is forgotten between two of them, by this process and, because Spark's Python workers are used once,
by the tasks. The recompute cannot import the engine (`tests/unit/test_import_boundaries.py`), so a mutant there leaves
it as it was; with a mutant of ``core`` it computes anew.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.mutants.catalogue import Mutant

_EVERYTHING = ("recount", "tests.unit", "tests.spark", "tests.mutants.scenes", "tests.mutants.runs")
_ENGINE = ("recount.spark", "tests.unit.spark.engine", "tests.unit.spark.topology_", "tests.mutants.runs")


class Trial:
    """Tries mutants against what the recompute says of each scene without any."""

    def __init__(self, package: Path, spark: Any) -> None:
        self._package, self._spark = package, spark
        self._expected: dict[str, Any] = {}

    def unharmed(self, names: set[str]) -> list[str]:
        """Where in the scenes called ``names`` the three do not agree without a mutant: there must be no difference."""
        scenes, runs = _imported()
        wrong = []
        for name, scene in scenes.scenes().items():
            if name not in names:
                continue
            self._expected[name] = expected = runs.by_recompute(self._spark, scene)
            told = [*runs.by_engine(scene), runs.by_interpreter(scene)]
            wrong += [f"{name}: {part}" for one in told for part in runs.differences(one, expected)]
        return wrong

    def tried(self, mutant: Mutant) -> dict[str, Any]:
        """The first scene whose audit is red, and in what; ``caught_by`` has the interpreter where it differs too."""
        file = self._package / mutant.file
        source = file.read_text()
        file.write_text(mutant.apply(source))
        try:
            return self._caught(mutant.scenes, anew=mutant.in_core)
        finally:
            file.write_text(source)
            _forget(_EVERYTHING if mutant.in_core else _ENGINE)

    def _caught(self, names: Sequence[str], *, anew: bool) -> dict[str, Any]:
        _forget(_EVERYTHING if anew else _ENGINE)
        scenes, runs = _imported()
        known = scenes.scenes()
        for name in names:
            scene = known[name]
            told = runs.by_engine(scene)
            if not any(runs.differences(one, self._expected[name]) for one in told):
                continue
            expected = runs.by_recompute(self._spark, scene) if anew else self._expected[name]
            parts = sorted({part for one in told for part in runs.differences(one, expected)})
            if parts:
                reference = replace(runs.by_interpreter(scene), held_after_ms=expected.held_after_ms)
                seen = any(runs.differences(one, reference) for one in told)
                return {"scene": name, "parts": parts, "caught_by": ["audit", *(["interpreter"] if seen else [])]}
        return {"scene": None, "parts": [], "caught_by": []}


def _imported() -> tuple[Any, Any]:
    return importlib.import_module("tests.mutants.scenes"), importlib.import_module("tests.mutants.runs")


def _forget(modules: tuple[str, ...]) -> None:
    for name in [name for name in sys.modules if name.startswith(modules)]:
        del sys.modules[name]
    importlib.invalidate_caches()


@contextmanager
def small_spark(scratch: Path, jars: str) -> Iterator[Any]:
    """Spark for a hundred records at a time, whose Python workers are used once."""
    from pyspark.sql import SparkSession

    from recount.sessions import session_configuration

    configuration = {
        **session_configuration(jars),
        "spark.master": "local[1]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(scratch / "local"),
        "spark.python.worker.reuse": "false",
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
    with small_spark(package.parent, sys.argv[2]) as spark:
        chosen = [Mutant(**one) for one in json.loads(sys.stdin.readline())]
        trial = Trial(package, spark)
        wrong = trial.unharmed({name for mutant in chosen for name in mutant.scenes})
        print(json.dumps({"unharmed": wrong}), flush=True)
        for mutant in [] if wrong else chosen:
            print(json.dumps(trial.tried(mutant)), flush=True)


if __name__ == "__main__":
    main()
