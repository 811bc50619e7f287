"""``recount`` itself is the one place from which declarations import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import recount
from recount.declare import language
from recount.profile.home import Project

ROOT = Project.containing(Path(__file__).parent).root
FOR_USERS = [
    *(ROOT / "include" / "topologies").glob("*.py"),
    *(ROOT / "include" / "recount" / "project" / "templates").rglob("*.j2"),
    *(ROOT / "dags").glob("*.py"),
    *(ROOT / "docs").glob("*.md"),
    ROOT / "README.md",
]


def test_importing_recount_loads_no_module_and_a_name_loads_the_language_only() -> None:
    code = """
import sys, recount
assert not [name for name in sys.modules if name.startswith("recount.")]
from recount import Topology, stream, tumbling
assert {name.split(".")[1] for name in sys.modules if name.startswith("recount.")} == {"declare", "runtime"}
assert not {"pyspark", "airflow", "confluent_kafka", "pytest"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_each_name_of_the_language_is_a_name_of_recount() -> None:
    for name in language.__all__:
        assert getattr(recount, name) is getattr(language, name)
        assert name in dir(recount)


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(AttributeError, match=r"'tumblin'; it has: .*, tumbling"):
        getattr(recount, "tumblin")  # noqa: B009 - no type checker lets the attribute through


@pytest.mark.parametrize("file", FOR_USERS, ids=lambda file: file.name)
def test_what_users_read_and_write_imports_from_there(file: Path) -> None:
    assert "from recount.declare" not in file.read_text()


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("from recount.core.topology import Topology", "from recount import"),
        ("from recount.airflow.dags import recount_dags", "from recount.airflow import"),
        ("from recount.spark.commands import stream_job", "from recount.jobs import"),
        ("from recount.audit.commands import audit_job", "from recount.jobs import"),
        ("from recount.backfill.commands import backfill_job", "from recount.jobs import"),
    ],
)
def test_an_import_of_an_earlier_release_says_from_where_the_name_comes_now(line: str, instead: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=instead):
        exec(line)  # noqa: S102
