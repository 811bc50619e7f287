"""After an audit in a real Airflow: who waits for it goes on, who is left out is skipped, a late run is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.airflow.conftest import Deployment, eventually

from recount.airflow.audits import certificate_of
from recount.audit.certificate.summary import STATES
from recount.profile.embedded import embedded_settings, end_profile
from recount.profile.embedded_airflow import AUDIT_POOL, EmbeddedAirflow
from recount.profile.home import Home
from recount.profile.project import Project
from recount.runtime.settings import Settings

pytestmark = pytest.mark.timeout(600)

ALERTS = """
import os
from airflow.sdk import BaseNotifier


class ToFile(BaseNotifier):
    def notify(self, context):
        with open(os.environ["TOLD"], "a") as told:
            print(context["exception"], file=told)


notifier = ToFile()
"""
DAGS = """
from datetime import timedelta
from pathlib import Path
from time import sleep

from airflow.sdk import DAG, AsyncCallback, DeadlineAlert, DeadlineReference, task

from recount.airflow.links import audit_dag, audited
from recount.airflow.nights import GroupAuditOperator, LEFT_OUT
from recount.airflow.notices import tell_of_deadline
from recount.airflow.links import audit_pool
from recount.airflow.audits import VerdictOperator

for stream, is_paused in (("quiet", True), ("fresh", False)):
    with DAG(audit_dag(stream), schedule=None, is_paused_upon_creation=is_paused):
        task(lambda: None, task_id="audit")()

with DAG("night", schedule=None):
    audit = GroupAuditOperator(
        task_id="audit", group="g", streams=["quiet", "fresh"], application=Path("none.py"), pool=audit_pool()
    )
    for stream in ("quiet", "fresh"):
        left_out = "{{ ti.xcom_pull(task_ids='audit', key='%s') }}" % (LEFT_OUT + stream)
        audit >> VerdictOperator(task_id=stream, stream=stream, audit="", left_out=left_out, trigger_rule="all_done")

with DAG("judge", schedule=None, params={"audit": ""}):
    VerdictOperator(task_id="verdict", stream="orders", audit="{{ params.audit }}", left_out="")

with DAG("bill", schedule=[audited("orders")]):

    @task
    def bill(triggering_asset_events):
        [event] = triggering_asset_events[audited("orders")]
        return event.extra["audit"]

    bill()

reference = DeadlineReference.DAGRUN_QUEUED_AT
alert = DeadlineAlert(reference=reference, interval=timedelta(seconds=3), callback=AsyncCallback(tell_of_deadline))
with DAG("slow", schedule=None, deadline=alert):
    task(lambda: sleep(30), task_id="audit")()
"""


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Iterator[Deployment]:
    dags, home = tmp_path_factory.mktemp("dags"), Home(path=tmp_path_factory.mktemp("home"))
    (dags / "nights.py").write_text(DAGS)
    (dags / "alerts.py").write_text(ALERTS)
    more = {"PYTHONPATH": str(dags), "TOLD": str(home.path / "told"), "RECOUNT_NOTIFIERS": "alerts:notifier"}
    environment = {**embedded_settings(home, project, "127.0.0.1:1").to_environment(), **more}
    try:
        with EmbeddedAirflow(home=home, project=project, environment=environment, dags=dags) as airflow:
            yield Deployment(airflow)
    finally:
        end_profile(home)


def issue(settings: Settings, audit: str, outcome: str) -> None:
    """A certificate of orders as far as a task reads it."""
    document = {
        "audit": audit,
        "stream": "orders",
        "outcome": outcome,
        "differences_found": 0,
        "grace_misses_found": 0,
        "interval_ms": [None, None],
        "cut": {"batch_timestamp_ms": 900, "frontier_ms": 800},
        "findings": {f"{state}{found}": [] if not found else 0 for state in STATES for found in ("", "_found")},
        "sha256": "ab",
    }
    file = certificate_of(settings, "orders", audit)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document))


def run(nights: Deployment, dag: str, **conf: Any) -> tuple[str, str]:
    """A run by hand to its end: its id and state."""
    nights.unpause(dag)
    started = nights.trigger(dag, conf)
    return started, nights.finished(dag, started)


def bills(nights: Deployment) -> list[str]:
    """The audits for which the waiting DAG has run."""
    runs = nights.airflow.request("GET", "/api/v2/dags/bill/dagRuns?order_by=id")["dag_runs"]
    place = "/api/v2/dags/bill/dagRuns/{}/taskInstances/bill/xcomEntries/return_value?deserialize=true"
    ended = [one["dag_run_id"] for one in runs if one["state"] == "success"]
    return [nights.airflow.request("GET", place.format(one))["value"] for one in ended]


def test_a_dag_that_waits_for_a_stream_runs_after_a_match_and_not_after_a_violation(nights: Deployment) -> None:
    nights.unpause("bill")
    for audit, outcome in (("one", "match"), ("two", "violation"), ("three", "match")):
        issue(nights.settings, audit, outcome)
        _, state = run(nights, "judge", audit=audit)
        assert state == ("success" if outcome == "match" else "failed")
        expected = {"one": 1, "two": 1, "three": 2}[audit]
        eventually(f"{expected} bills", lambda expected=expected: len(bills(nights)) == expected)
    assert bills(nights) == ["one", "three"]


def test_a_night_leaves_out_the_stream_whose_audit_is_paused_and_one_that_has_never_run(nights: Deployment) -> None:
    started, state = run(nights, "night")
    assert state == "success"
    assert [nights.task_state("night", started, task) for task in ("audit", "quiet", "fresh")] == [
        "success",
        "skipped",
        "skipped",
    ]
    place = f"/api/v2/dags/night/dagRuns/{started}/taskInstances/audit/xcomEntries"
    keys = {entry["key"] for entry in nights.airflow.request("GET", place)["xcom_entries"]}
    assert keys == {"left out: quiet", "left out: fresh"}


def test_the_profile_has_made_the_pool_of_the_audits(nights: Deployment) -> None:
    assert nights.airflow.request("GET", f"/api/v2/pools/{AUDIT_POOL}")["slots"] == 1


def test_a_run_that_has_not_ended_by_its_deadline_is_told_to_the_notifiers(nights: Deployment) -> None:
    nights.unpause("slow")
    started = nights.trigger("slow")
    told = Path(nights.airflow.environment["TOLD"])

    def is_told() -> bool:
        return told.exists() and f"the run {started} has not ended by its deadline" in told.read_text()

    eventually("the notifier is told", is_told)
