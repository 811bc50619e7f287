"""The DAG files: quick to parse, without network, Spark or Great Expectations, and one DAG per declaration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recount.declare.registry import declared
from recount.profile.dag_runs import nights_of, streams_of
from recount.profile.project import Project

PARSE_LIMIT = 7
"""In yardsticks of ``parse_dags.py``: twice what the slowest file took beside other work."""

PARSE = Path(__file__).with_name("parse_dags.py")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What ``parse_dags.py`` says of each DAG file, by the file's name."""
    root = Project.containing(Path(__file__).parent).root
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow"))}
    files = sorted(str(file) for file in (root / "dags").glob("*.py"))
    command = [sys.executable, str(PARSE), *files]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert answer.returncode == 0, answer.stderr
    lines = [json.loads(line[7:]) for line in answer.stdout.splitlines() if line.startswith("PARSED ")]
    return {Path(found["file"]).stem: found for found in lines}


@pytest.fixture(scope="module")
def parsed(files: dict[str, Any]) -> dict[str, Any]:
    """What it says of all DAGs, whatever their file: tasks, labels, groups, first runs, rules, whether paused."""
    kinds = ("dags", "labels", "groups", "first_runs", "rules", "paused")
    return {kind: {name: one for found in files.values() for name, one in found[kind].items()} for kind in kinds}


def test_every_dag_file_is_parsed_without_an_error(files: dict[str, Any]) -> None:
    assert {name: found["errors"] for name, found in files.items() if found["errors"]} == {}


def test_a_dag_file_is_parsed_quickly_beside_a_fixed_piece_of_work(files: dict[str, Any]) -> None:
    assert {name: found["yardsticks"] for name, found in files.items() if found["yardsticks"] > PARSE_LIMIT} == {}


def test_a_dag_file_imports_nothing_heavy(files: dict[str, Any]) -> None:
    assert {name: found["heavy"] for name, found in files.items() if found["heavy"]} == {}


def test_every_stream_has_a_dag_and_every_topology_an_audit_and_a_backfill(parsed: dict[str, Any]) -> None:
    declarations = declared()
    of_topologies = {
        f"{kind}__{name}" for kind in ("audit", "backfill", "findings") for name in declarations.topologies
    }
    of_streams = {f"stream__{name}" for name in declarations.streams}
    of_groups = {f"night__{name}" for name in declarations.groups}
    others = {"stream_control", "topics", "maintenance"}
    assert set(parsed["dags"]) == of_topologies | of_streams | of_groups | others
    assert set(streams_of(declarations)) == of_streams
    assert set(nights_of(declarations)) == of_groups, "every stream of the shop shares a driver"


def test_the_dags_of_a_stream_are_listed_together_and_found_by_kind_module_and_group(parsed: dict[str, Any]) -> None:
    stream = {"shown": "unpaid-orders: stream", "tags": ["group:customers", "payments", "recount", "stream"]}
    assert parsed["labels"]["stream__unpaid-orders"] == {**stream, "owner": "payments"}
    audit = {"shown": "unpaid-orders: audit", "tags": ["audit", "group:customers", "payments", "recount"]}
    assert parsed["labels"]["audit__unpaid-orders"] == {**audit, "owner": "payments"}
    kinds = ("backfill__", "findings__")
    owners = {found["owner"] for name, found in parsed["labels"].items() if name.startswith(kinds)}
    assert owners == {"clicks", "customers", "fraud", "orders", "page_views", "payments", "windows"}


def test_the_operator_of_a_stream_knows_the_group_that_is_declared(parsed: dict[str, Any]) -> None:
    groups = parsed["groups"]
    declared_groups = {f"stream__{name}": group.name for group in declared().groups.values() for name in group.members}
    assert {name: group for name, group in groups.items() if group} == declared_groups


def test_a_stream_is_held_before_it_runs(parsed: dict[str, Any]) -> None:
    assert parsed["dags"]["stream__revenue-by-region"] == {"hold": ["run"], "run": []}


def test_every_topology_is_audited_by_one_schedule_that_of_its_group_or_its_own(parsed: dict[str, Any]) -> None:
    grouped = {name for group in declared().groups.values() for name in group.members}
    first_runs = parsed["first_runs"]
    scheduled = {name for name, first in first_runs.items() if first and name.startswith("audit__")}
    assert scheduled == {f"audit__{name}" for name in declared().topologies if name not in grouped}
    assert all(first_runs[f"night__{name}"] for name in declared().groups)


def test_the_night_of_a_group_has_a_task_group_for_each_of_its_topologies(parsed: dict[str, Any]) -> None:
    for name, group in declared().groups.items():
        tasks = parsed["dags"][f"night__{name}"]
        topologies = {stream for stream in group.members if stream in declared().topologies}
        assert set(tasks["audit"]) == {"panels", *(f"{stream}.verdict" for stream in topologies)}
        assert tasks["audit"]
    rules = parsed["rules"]["night__orders"]
    # a stream that could not be judged, or was, does not keep the others from saying what was found of them
    assert rules["revenue-by-region.verdict"] == "all_done"
    assert rules["revenue-by-region.proved"] == "none_failed_min_one_success"


def test_grace_misses_are_announced_after_the_expectations_and_after_a_violation_too(parsed: dict[str, Any]) -> None:
    """Item 1.2: a violation fails the audit task, and does not keep misses from being announced."""
    assert parsed["dags"]["audit__revenue-by-region"] == {
        "audit": ["expectations", "grace_misses", "limits", "panels", "proved"],
        "expectations": ["grace_misses", "proved"],
        "grace_misses": ["proved"],
        "limits": ["proved"],
        "panels": [],
        "proved": [],
    }
    rules = parsed["rules"]["audit__revenue-by-region"]
    assert {rules[task] for task in ("expectations", "grace_misses", "panels")} == {"all_done"}
    # a last task fails when the audit did: otherwise the run would be green
    assert rules["proved"] == "none_failed_min_one_success"


def test_a_repair_is_shown_first_approved_then_audited(parsed: dict[str, Any]) -> None:
    assert parsed["dags"]["backfill__revenue-by-region"] == {
        "dry_run": ["how"],
        "how": ["approval", "repair"],
        "approval": ["repair"],
        "repair": ["audit_again"],
        "audit_again": [],
    }


def test_open_findings_are_accepted_only_after_a_person_has_approved(parsed: dict[str, Any]) -> None:
    """Item 1.1: a person accepts, with name and reason."""
    assert parsed["dags"]["findings__revenue-by-region"] == {
        "open_findings": ["approval"],
        "approval": ["accept"],
        "accept": [],
    }


def test_no_night_and_no_backfill_that_is_new_runs_by_itself(parsed: dict[str, Any]) -> None:
    """Airflow pauses what is new unless the DAG says otherwise; an audit of a group's stream has no schedule."""
    unpaused = {name for name, paused in parsed["paused"].items() if paused is False}
    of_groups = {f"audit__{name}" for group in declared().groups.values() for name in group.members}
    assert unpaused == of_groups & parsed["dags"].keys()
