"""Airflow of the embedded profile is closed to strangers, and answers users who write at once.

Our pages show nothing outside the reports folder.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from tests.airflow.conftest import HTTP_TIMEOUT_S, STREAM, TRIED, Deployment, signed_in
from tests.eventually import awaited

from recount.profile import daemon
from recount.profile.embedded_airflow import EmbeddedAirflow
from recount.profile.home import Home

pytestmark = pytest.mark.timeout(600)
ROUTES = ("/recount/", f"/recount/streams/{TRIED}", "/recount/data-docs", "/recount/reports/certificates/x.html")


@pytest.fixture(scope="module")
def user(airflow: EmbeddedAirflow) -> httpx.Client:
    return signed_in(airflow, airflow.username, airflow.password)


@pytest.mark.parametrize("password", ["", "admin", "airflow", "password"])
def test_no_default_password_lets_anybody_in(airflow: EmbeddedAirflow, password: str) -> None:
    login = {"username": "admin", "password": password}
    assert httpx.post(f"{airflow.url}/auth/token", json=login, timeout=HTTP_TIMEOUT_S).status_code in (400, 401)


def test_nothing_is_told_without_a_login(airflow: EmbeddedAirflow) -> None:
    assert httpx.get(f"{airflow.url}/api/v2/dags", timeout=HTTP_TIMEOUT_S).status_code == 401


def test_only_the_owner_reads_password_and_keys(airflow: EmbeddedAirflow) -> None:
    for name in ("passwords.json", "keys.json"):
        assert (Path(airflow.environment["AIRFLOW_HOME"]) / name).stat().st_mode & 0o077 == 0


def test_it_listens_on_the_loopback_address_only(airflow: EmbeddedAirflow) -> None:
    home = Home(path=Path(airflow.environment["AIRFLOW_HOME"]).parent)
    leaders = [psutil.Process(component.pid) for component in daemon.recorded(home)]
    assert leaders
    addresses = {
        connection.laddr.ip
        for leader in leaders
        for process in (leader, *leader.children(recursive=True))
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert addresses == {"127.0.0.1"}


@pytest.mark.parametrize("route", ROUTES)
def test_no_page_is_shown_to_a_stranger(deployment: Deployment, route: str) -> None:
    assert httpx.get(deployment.airflow.url + route, timeout=HTTP_TIMEOUT_S).status_code == 401
    forged = {"Authorization": "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9."}
    assert httpx.get(deployment.airflow.url + route, headers=forged, timeout=HTTP_TIMEOUT_S).status_code in (401, 403)


def test_the_page_says_what_airflow_knows_of_the_audits(deployment: Deployment, user: httpx.Client) -> None:
    [row] = [one for one in user.get("/recount/").text.split("<tr") if f'/recount/streams/{STREAM}"' in one]
    assert f"audit__{STREAM} is paused" in row
    deployment.dag_runs.unpause(f"audit__{STREAM}")
    awaited("next audit", lambda: re.search(r"next audit\">2\d{3}-\d\d-\d\d 0[1-3]:\d\d", user.get("/recount/").text))


def test_a_button_starts_a_run_in_the_name_of_the_user_and_nobody_else_can(
    deployment: Deployment, user: httpx.Client
) -> None:
    deployment.dag_runs.unpause("stream_control")
    before = deployment.last_run("stream_control")
    page = user.get(f"/recount/streams/{TRIED}").text
    [token] = set(re.findall(r'name="token" value="([^"]+)"', page))
    order = f"/recount/streams/{TRIED}/stop"
    assert user.post(order).status_code == 403
    assert httpx.post(deployment.airflow.url + order, data={"token": token}, timeout=HTTP_TIMEOUT_S).status_code == 401
    assert deployment.last_run("stream_control") == before
    answer = user.post(order, data={"token": token})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/recount/streams/{TRIED}?started=stop")
    run = deployment.last_run("stream_control")
    assert run != before and run is not None
    started = deployment.airflow.request("GET", f"/api/v2/dags/stream_control/dagRuns/{run}")
    assert started["conf"] == {"stream": TRIED, "order": "stop"}
    assert (started["triggered_by"], started["triggering_user_name"]) == ("ui", deployment.airflow.username)
    assert deployment.finished("stream_control", run) == "success"


def test_a_report_is_served_and_nothing_outside_the_folder_is(deployment: Deployment, user: httpx.Client) -> None:
    reports = Path(deployment.settings.reports)
    (reports / "certificates").mkdir(exist_ok=True)
    (reports / "certificates" / "x.html").write_text("<p>proved</p>")
    (reports.parent / "secret.txt").write_text("secret")
    (reports / "link.txt").symlink_to(reports.parent / "secret.txt")
    assert user.get("/recount/reports/certificates/x.html").text == "<p>proved</p>"
    for path in ("../secret.txt", "..%2fsecret.txt", "%2e%2e/secret.txt", "link.txt", "certificates", "missing.html"):
        answer = user.get(f"/recount/reports/{path}")
        assert "secret" not in answer.text
        assert answer.status_code != 200 or "<html" in answer.text.lower()  # Airflow's own page, for a path of its own


def test_users_who_write_at_once_do_not_stop_airflow(deployment: Deployment, user: httpx.Client) -> None:
    """SQLite takes one writer; why that is not enough, ``recount.airflow.sqlite_writes`` says."""
    dag = f"/api/v2/dags/backfill__{STREAM}"  # paused: its runs wait and do nothing

    def starts() -> list[int]:
        return [user.post(f"{dag}/dagRuns", json={"logical_date": None}).status_code for _ in range(30)]

    def pauses() -> list[int]:
        return [user.patch(dag, json={"is_paused": True}).status_code for _ in range(30)]

    with ThreadPoolExecutor() as users:
        answers = [users.submit(starts), users.submit(pauses)]
        assert {status for each in answers for status in each.result()} == {200}
