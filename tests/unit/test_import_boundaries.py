"""Dependencies point one way. The table below is the map of the house; an import that is not on it fails here."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recount.local.project import Project

FOUNDATION = {"core", "codec", "sessions", "kafka"}

# room: the other rooms it may import. recompute and spark never meet: the one proves the other.
ROOMS = {
    "core": set(),
    "codec": {"core"},
    "commands": {"core", "spark"},
    "testing": {"core"},
    "sessions": {"core"},
    "kafka": {"core"},
    "proofs": {"core"},
    "spark": FOUNDATION | {"proofs"},
    "recompute": FOUNDATION,
    "audit": FOUNDATION | {"recompute", "proofs"},
    "backfill": FOUNDATION | {"recompute", "audit"},
    "serve": FOUNDATION | {"audit"},
    "airflow": FOUNDATION | {"audit", "serve"},
    "local": FOUNDATION | {"audit"},
    "topologies": {"core"},
    "dags": {"core", "airflow"},
    "spark_jobs": FOUNDATION | {"spark", "recompute", "audit", "backfill"},
    "cli": FOUNDATION | {"spark", "recompute", "audit", "backfill", "serve", "airflow", "local"},
}

# What a room must not need: Airflow parses DAGs with it, a broker client without a JVM uses it.
BANNED_LIBRARIES = {
    "airflow": {"pyspark", "great_expectations", "polars", "pandas"},
    "dags": {"pyspark", "great_expectations", "polars", "pandas"},
    "kafka": {"pyspark", "airflow", "great_expectations"},
    "recompute": {"airflow", "great_expectations"},
    "spark": {"airflow", "great_expectations"},
}


def room_of(module: str) -> str | None:
    """The room a dotted module name lies in, or None for a library."""
    first, *rest = module.split(".")
    if first == "recount":
        return rest[0] if rest else None
    return first if first in ROOMS else None


def imports(source: str) -> Iterator[str]:
    """Every module name that ``source`` imports, at whatever depth it does so."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from recount import core` names a room only in its second half
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from names if node.module == "recount" else [node.module]


def faults(room: str, source: str) -> list[str]:
    """What ``source`` in ``room`` imports and must not."""
    found = []
    for module in imports(source):
        library = module.split(".")[0]
        target = room_of(module)
        if target is None:
            if library in BANNED_LIBRARIES.get(room, set()):
                found.append(f"{room} must do without {library}")
            if room == "core" and library not in sys.stdlib_module_names:
                found.append(f"core is standard library only, not {library}")
        elif target != room and target not in ROOMS[room]:
            found.append(f"{room} must not import {target}")
    return found


def files(root: Path) -> Iterator[tuple[str, Path]]:
    """Every module of the project with its room."""
    for file in sorted((root / "include" / "recount").rglob("*.py")):
        inside = file.relative_to(root / "include" / "recount")
        if inside.name != "__init__.py" or len(inside.parts) > 1:
            yield inside.parts[0].removesuffix(".py"), file
    for room, folder in (("topologies", "include/topologies"), ("dags", "dags"), ("spark_jobs", "spark_jobs")):
        yield from ((room, file) for file in sorted((root / folder).rglob("*.py")))


def test_no_import_crosses_a_boundary(project: Project) -> None:
    found = [
        f"{file.relative_to(project.root)}: {fault}"
        for room, file in files(project.root)
        for fault in faults(room, file.read_text())
    ]
    assert not found, "\n".join(found)


def test_every_module_lies_in_a_room_of_the_map(project: Project) -> None:
    assert {room for room, _ in files(project.root)} <= ROOMS.keys()


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("core", "import polars"),
        ("core", "def late():\n    from pyspark.sql import functions"),
        ("core", "from recount.kafka.topics import plan"),
        ("core", "from recount import kafka"),
        ("recompute", "from recount.spark.stage import run"),
        ("spark", "import recount.recompute.flow"),
        ("kafka", "from recount.airflow.operators import StreamOperator"),
        ("dags", "import pyspark"),
        ("dags", "from recount.spark.runner import StreamRunner"),
        ("topologies", "from recount.cli import app"),
    ],
)
def test_a_forbidden_import_is_found(room: str, source: str) -> None:
    assert len(faults(room, source)) == 1


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("core", "import json\nfrom recount.core.errors import Terminal"),
        ("spark", "import pyspark\nfrom recount.kafka.transaction import OutputTransaction"),
        ("dags", "from recount.airflow.operators import StreamOperator\nfrom airflow.sdk import dag"),
    ],
)
def test_an_allowed_import_is_not(room: str, source: str) -> None:
    assert faults(room, source) == []
