"""The DAG files: quick to parse, without network, Spark or Great Expectations, and one DAG per declaration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recount.core.registry import declared
from recount.local.project import Project

PARSE_LIMIT_S = 0.9

PARSE = Path(__file__).with_name("parse_dags.py")


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What ``parse_dags.py`` says of each DAG file, by the file's name."""
    root = Project.containing(Path(__file__).parent).root
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow"))}
    files = sorted(str(file) for file in (root / "dags").glob("*.py"))
    command = [sys.executable, str(PARSE), *files]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert answer.returncode == 0, answer.stderr
    lines = [json.loads(line[7:]) for line in answer.stdout.splitlines() if line.startswith("PARSED ")]
    return {Path(found["file"]).stem: found for found in lines}


def test_every_dag_file_is_parsed_without_an_error(parsed: dict[str, Any]) -> None:
    assert {name: found["errors"] for name, found in parsed.items() if found["errors"]} == {}


def test_a_dag_file_is_parsed_in_well_under_a_second(parsed: dict[str, Any]) -> None:
    assert {name: found["seconds"] for name, found in parsed.items() if found["seconds"] > PARSE_LIMIT_S} == {}


def test_a_dag_file_imports_nothing_heavy(parsed: dict[str, Any]) -> None:
    assert {name: found["heavy"] for name, found in parsed.items() if found["heavy"]} == {}


def test_every_stream_has_a_dag_and_every_topology_an_audit_and_a_backfill(parsed: dict[str, Any]) -> None:
    declarations = declared()
    assert set(parsed["streams"]["dags"]) == {"stream_control"} | {f"stream__{name}" for name in declarations.streams}
    assert set(parsed["audit"]["dags"]) == {f"audit__{name}" for name in declarations.topologies}
    assert set(parsed["nights"]["dags"]) == {f"night__{name}" for name in declarations.groups}
    assert set(parsed["backfill"]["dags"]) == {f"backfill__{name}" for name in declarations.topologies}
    assert set(parsed["acceptance"]["dags"]) == {f"findings__{name}" for name in declarations.topologies}


def test_the_dags_of_a_stream_are_listed_together_and_found_by_kind_module_and_group(parsed: dict[str, Any]) -> None:
    stream = {"shown": "unpaid-orders: stream", "tags": ["group:customers", "payments", "recount", "stream"]}
    assert parsed["streams"]["labels"]["stream__unpaid-orders"] == {**stream, "owner": "payments"}
    audit = {"shown": "unpaid-orders: audit", "tags": ["audit", "group:customers", "payments", "recount"]}
    assert parsed["audit"]["labels"]["audit__unpaid-orders"] == {**audit, "owner": "payments"}
    owners = {found["owner"] for name in ("backfill", "acceptance") for found in parsed[name]["labels"].values()}
    assert owners == {"clicks", "customers", "fraud", "orders", "page_views", "payments", "windows"}


def test_the_operator_of_a_stream_knows_the_group_that_is_declared(parsed: dict[str, Any]) -> None:
    groups = parsed["streams"]["groups"]
    declared_groups = {f"stream__{name}": group.name for group in declared().groups.values() for name in group.members}
    assert {name: group for name, group in groups.items() if group} == declared_groups


def test_a_stream_is_held_before_it_runs(parsed: dict[str, Any]) -> None:
    assert parsed["streams"]["dags"]["stream__revenue-by-region"] == {"hold": ["run"], "run": []}


def test_every_topology_is_audited_by_one_schedule_that_of_its_group_or_its_own(parsed: dict[str, Any]) -> None:
    grouped = {name for group in declared().groups.values() for name in group.members}
    scheduled = {name for name, first in parsed["audit"]["first_runs"].items() if first}
    assert scheduled == {f"audit__{name}" for name in declared().topologies if name not in grouped}
    assert all(parsed["nights"]["first_runs"].values())


def test_the_night_of_a_group_has_a_task_group_for_each_of_its_topologies(parsed: dict[str, Any]) -> None:
    for name, group in declared().groups.items():
        tasks = parsed["nights"]["dags"][f"night__{name}"]
        topologies = {stream for stream in group.members if stream in declared().topologies}
        assert set(tasks["audit"]) == {"panels", *(f"{stream}.verdict" for stream in topologies)}
        assert tasks["audit"]
    rules = parsed["nights"]["rules"]["night__orders"]
    # a stream that could not be judged, or was, does not keep the others from saying what was found of them
    assert rules["revenue-by-region.verdict"] == "all_done"
    assert rules["revenue-by-region.proved"] == "none_failed_min_one_success"


def test_grace_misses_are_announced_after_the_expectations_and_after_a_violation_too(parsed: dict[str, Any]) -> None:
    """Item 1.2: a violation fails the audit task, and does not keep misses from being announced."""
    assert parsed["audit"]["dags"]["audit__revenue-by-region"] == {
        "audit": ["expectations", "grace_misses", "limits", "panels", "proved"],
        "expectations": ["grace_misses", "proved"],
        "grace_misses": ["proved"],
        "limits": ["proved"],
        "panels": [],
        "proved": [],
    }
    rules = parsed["audit"]["rules"]["audit__revenue-by-region"]
    assert {rules[task] for task in ("expectations", "grace_misses", "panels")} == {"all_done"}
    # a last task fails when the audit did: otherwise the run would be green
    assert rules["proved"] == "none_failed_min_one_success"


def test_a_repair_is_shown_first_approved_then_audited(parsed: dict[str, Any]) -> None:
    assert parsed["backfill"]["dags"]["backfill__revenue-by-region"] == {
        "dry_run": ["how"],
        "how": ["approval", "repair"],
        "approval": ["repair"],
        "repair": ["audit_again"],
        "audit_again": [],
    }


def test_open_findings_are_accepted_only_after_a_person_has_approved(parsed: dict[str, Any]) -> None:
    """Item 1.1: a person accepts, with name and reason."""
    assert parsed["acceptance"]["dags"]["findings__revenue-by-region"] == {
        "open_findings": ["approval"],
        "approval": ["accept"],
        "accept": [],
    }
