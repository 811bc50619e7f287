"""After an audit in a real Airflow: who waits for it goes on, who is left out is skipped, a late run is told."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from tests.airflow.conftest import Deployment
from tests.eventually import awaited
from tests.unit.airflow.test_nights import issue

from recount.profile.embedded_airflow import AUDIT_POOL

pytestmark = pytest.mark.timeout(600)


def bills(deployment: Deployment) -> list[str]:
    """The audits for which the waiting DAG has run."""
    runs = deployment.airflow.request("GET", "/api/v2/dags/bill/dagRuns?order_by=id")["dag_runs"]
    place = "/api/v2/dags/bill/dagRuns/{}/taskInstances/bill/xcomEntries/return_value?deserialize=true"
    ended = [one["dag_run_id"] for one in runs if one["state"] == "success"]
    return [deployment.airflow.request("GET", place.format(one))["value"] for one in ended]


def test_a_dag_that_waits_for_a_stream_runs_after_a_match_and_not_after_a_violation(deployment: Deployment) -> None:
    runs = deployment.dag_runs
    runs.unpause("bill")
    for audit, outcome, billed in (("one", "match", 1), ("two", "violation", 1), ("three", "match", 2)):
        issue(deployment.settings, "orders", audit, outcome=outcome)
        judged = runs.wait("judge", runs.trigger("judge", audit=audit), 180)
        assert judged.state == ("success" if outcome == "match" else "failed")
        awaited(f"{billed} bills", lambda billed=billed: len(bills(deployment)) == billed)
    assert bills(deployment) == ["one", "three"]


def test_a_night_leaves_out_the_stream_whose_audit_is_paused_and_one_that_has_never_run(deployment: Deployment) -> None:
    night = deployment.dag_runs.wait("night", deployment.dag_runs.trigger("night"), 180)
    assert night.state == "success"
    assert night.tasks == {"audit": "success", "quiet": "skipped", "fresh": "skipped"}
    place = f"/api/v2/dags/night/dagRuns/{night.run}/taskInstances/audit/xcomEntries"
    keys = [entry["key"] for entry in deployment.airflow.request("GET", place)["xcom_entries"]]
    assert {key: deployment.airflow.request("GET", f"{place}/{quote(key)}")["value"] for key in keys} == {
        "left out: quiet": "audit__quiet is paused",
        "left out: fresh": "it has never run",
    }


def test_the_profile_has_made_the_pool_of_the_audits(deployment: Deployment) -> None:
    assert deployment.airflow.request("GET", f"/api/v2/pools/{AUDIT_POOL}")["slots"] == 1


def test_a_run_that_has_not_ended_by_its_deadline_is_told_to_the_notifiers(deployment: Deployment) -> None:
    started = deployment.dag_runs.trigger("slow")
    told = Path(deployment.airflow.environment["TOLD"])

    def is_told() -> bool:
        return told.exists() and f"the run {started} has not ended by its deadline" in told.read_text()

    awaited("the notifier is told", is_told)
