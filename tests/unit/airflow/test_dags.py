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


def test_the_first_nightly_audit_of_a_new_stream_is_the_next_night_s(parsed: dict[str, Any]) -> None:
    """The audit of the night before could only fail. The DAGs are new at half past two."""
    assert set(parsed["audit"]["first_runs"].values()) == {"2026-11-24T01:00:00+00:00"}


def test_grace_misses_are_announced_after_the_expectations_and_after_a_violation_too(parsed: dict[str, Any]) -> None:
    """Item 1.2: a violation fails the audit task, and does not keep misses from being announced."""
    assert parsed["audit"]["dags"]["audit__revenue-by-region"] == {
        "audit": ["expectations", "grace_misses", "limits", "proved"],
        "expectations": ["grace_misses", "proved"],
        "grace_misses": ["proved"],
        "limits": ["proved"],
        "proved": [],
    }
    rules = parsed["audit"]["rules"]["audit__revenue-by-region"]
    assert (rules["expectations"], rules["grace_misses"]) == ("all_done", "all_done")
    # the only last task fails when the audit did: otherwise the run would be green
    assert rules["proved"] == "none_failed"


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
