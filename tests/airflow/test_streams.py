"""A stream under Airflow: launched, adopted, relaunched, stopped, and left alone when Airflow goes away.

The tests run in the order written here, on one stream: each begins where the last one ended.
"""

from __future__ import annotations

import os
import signal

import pytest
from tests.airflow.conftest import STREAM, Deployment
from tests.eventually import awaited

from recount.airflow.links import stream_dag

DAG = stream_dag(STREAM)
pytestmark = pytest.mark.timeout(400)


def test_a_stream_is_launched_and_watched_without_a_worker_slot(deployment: Deployment) -> None:
    deployment.dag_runs.unpause(DAG)
    assert deployment.runs().lease_epoch == 1
    assert awaited("the watch is deferred", deployment.watching)
    assert len(deployment.driver_processes()) == 1


@pytest.mark.thorough
def test_a_restart_of_airflow_leaves_the_stream_alone(deployment: Deployment) -> None:
    before, run = deployment.status(), deployment.watching()
    assert before is not None
    deployment.airflow.restart()
    assert awaited("the watch is deferred again", deployment.watching) == run
    deployment.speaks_on()
    after = deployment.status()
    assert after is not None
    assert (after.driver_id, after.lease_epoch) == (before.driver_id, before.lease_epoch)
    assert len(deployment.driver_processes()) == 1


def test_a_killed_driver_is_relaunched_in_the_same_run(deployment: Deployment) -> None:
    run, driver, before = deployment.watching(), deployment.driver(), deployment.status()
    assert run and driver and before
    os.killpg(driver.pid, signal.SIGKILL)
    deployment.runs(after_epoch=before.lease_epoch)
    awaited("the watch is deferred", deployment.watching)
    assert deployment.watching() == run
    assert len(deployment.driver_processes()) == 1


def test_a_cleared_task_adopts_the_driver_and_never_makes_two(deployment: Deployment) -> None:
    driver, run = deployment.driver(), deployment.watching()
    assert driver and run
    tries = deployment.tries(DAG, run, "run")
    deployment.airflow.request(
        "POST",
        f"/api/v2/dags/{DAG}/clearTaskInstances",
        {"dry_run": False, "dag_run_id": run, "task_ids": ["run"], "only_failed": False},
    )
    awaited("the second try watches", lambda: deployment.tries(DAG, run, "run") > tries and deployment.watching())
    deployment.speaks_on()
    assert deployment.driver() == driver
    assert len(deployment.driver_processes()) == 1
    assert deployment.watching() == run


@pytest.mark.thorough
def test_marking_the_task_failed_stops_the_stream_and_holds_it(deployment: Deployment) -> None:
    run = deployment.watching()
    assert run
    task = f"/api/v2/dags/{DAG}/dagRuns/{run}/taskInstances/run"
    deployment.airflow.request("PATCH", task, {"new_state": "failed"})  # as the button "mark as failed" does
    awaited("the driver says stopped", lambda: deployment.state() == "stopped")
    awaited("the driver is gone", lambda: not deployment.driver_processes())
    # A run that began between the mark and the stop sees its driver stopped by order; the one after it holds.
    awaited("the stream is held", lambda: deployment.last_run(DAG) != run and deployment.holding())
    assert not deployment.driver_processes()


@pytest.mark.thorough
def test_the_order_to_start_launches_it_again_and_the_order_to_stop_ends_it(deployment: Deployment) -> None:
    before = deployment.status()
    assert before
    started = deployment.dag_runs.trigger("stream_control", stream=STREAM, order="start")
    assert deployment.finished("stream_control", started) == "success"
    deployment.runs(after_epoch=before.lease_epoch)
    run = awaited("the watch is deferred", deployment.watching)
    stopped = deployment.dag_runs.trigger("stream_control", stream=STREAM, order="stop")
    assert deployment.finished("stream_control", stopped) == "success"
    awaited("the driver says stopped", lambda: deployment.state() == "stopped")
    assert deployment.finished(DAG, run) == "success"
    awaited("the next run holds", lambda: deployment.last_run(DAG) != run)
    assert not deployment.driver_processes()
