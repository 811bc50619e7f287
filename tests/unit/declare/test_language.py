"""``recount`` itself is the one place from which declarations import."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import recount
from recount.declare.functions import FunctionFailed
from recount.profile.home import Project
from recount.runtime.errors import InvalidDeclaration, RecountError, Transient
from recount.runtime.settings import InvalidSettings, Settings, metric_ports

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


@pytest.mark.parametrize(
    "error",
    [
        Transient("the broker is away", given="127.0.0.1:1", expected="an answer", remedy="start it"),
        InvalidDeclaration("topic.name", given="", expected="a name", remedy="give it one"),
        FunctionFailed("map to n", "orders-0@1", ValueError("no")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_in_another_process(error: RecountError) -> None:
    there = pickle.loads(pickle.dumps(error))  # noqa: S301 - of our own making
    assert type(there) is type(error)
    assert (str(there), there.args, vars(there)) == (str(error), error.args, vars(error))


def test_each_driver_has_a_port_and_without_a_setting_none_has() -> None:
    assert metric_ports("") == {}
    assert metric_ports(" orders=9401 ,archive-clicks = 9402,") == {"orders": 9401, "archive-clicks": 9402}
    assert metric_ports("archive-Clicks_EU.v1=9403") == {"archive-Clicks_EU.v1": 9403}


@pytest.mark.parametrize(
    "text", ["9401", "orders", "orders=", "orders=0", "orders=65536", "orders=1, orders=2", "a=1, b=1", "a=1;b=2"]
)
def test_what_is_no_list_of_ports_is_refused(text: str) -> None:
    with pytest.raises(InvalidDeclaration):
        metric_ports(text)
    with pytest.raises(InvalidSettings, match="RECOUNT_METRICS: invalid ports of metrics"):
        Settings.from_environment({"RECOUNT_METRICS": text})
