"""The roles of Recount in a real Airflow with FAB: what each user is answered, on the pages and by Airflow itself."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect
from tests.airflow.conftest import TRIED, Deployment, signed_in
from tests.eventually import awaited

from recount.airflow.links import CONTROL, PAGES, backfill_dag, findings_dag, stream_dag
from recount.airflow.roles import ROLES

pytestmark = pytest.mark.timeout(600)
VIEWER, OPERATOR, AUDITOR = NAMES = [role.name for role in ROLES]
PAGE = f"{PAGES}/streams/{TRIED}"


class Users:
    """An Airflow with one user for each role, and one without any."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.applied = self.apply_roles()
        self.passwords: dict[str, str] = {}
        self.clients = {name: self._client(name, role) for name, role in {**_SAME, "stranger": "Public"}.items()}

    def apply_roles(self) -> dict[str, str]:
        """``recount roles --apply``: what it says of each role."""
        airflow = self.deployment.airflow
        command = [Path(sys.executable).with_name("recount"), "roles", "--apply"]
        folder = airflow.environment["AIRFLOW_HOME"]
        ended = subprocess.run(
            command, env=airflow.environment, cwd=folder, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return dict(line.split(": ", 1) for line in ended.stdout.splitlines() if line.startswith("recount-"))

    def _client(self, name: str, role: str) -> httpx.Client:
        airflow = self.deployment.airflow
        password = self.passwords[name] = secrets.token_urlsafe(12)
        body = {"username": name, "password": password, "email": f"{name}@localhost", "roles": [{"name": role}]}
        airflow.request("POST", "/auth/fab/v1/users", {**body, "first_name": name, "last_name": name})
        return signed_in(airflow, name, password)

    def button(self, name: str, order: str) -> int:
        """The answer to an order from the page of the stream, with the token of that page."""
        page = self.clients[name].get(PAGE).text
        [token] = set(re.findall(r'name="token" value="([^"]+)"', page))
        return self.clients[name].post(f"{PAGE}/{order}", data={"token": token}).status_code

    def call(self, name: str, method: str, path: str, body: Any = None) -> httpx.Response:
        """A call of Airflow's own API."""
        return self.clients[name].request(method, f"/api/v2{path}", json=body)

    def waiting(self, dag: str) -> str:
        """The task of a new run of ``dag`` that waits for a person, as a path of the API."""
        run = self.deployment.dag_runs.trigger(dag)
        states = ("deferred", "awaiting_input")
        awaited(f"{dag} waits", lambda: self.deployment.task_state(dag, run, "approval") in states)
        return f"/dags/{dag}/dagRuns/{run}/taskInstances/approval"


_SAME = {name: name for name in NAMES}


@pytest.fixture(scope="module")
def users(deployment: Deployment) -> Users:
    deployment.dag_runs.unpause_all([CONTROL, findings_dag(TRIED)])
    return Users(deployment)


def test_the_roles_are_made(users: Users) -> None:
    assert users.applied.keys() == set(NAMES)
    assert all(said.startswith("made, ") for said in users.applied.values())


def test_who_has_a_role_sees_the_pages_and_the_dags_and_nobody_else_does(users: Users) -> None:
    for name in NAMES:
        assert users.clients[name].get(f"{PAGES}/").status_code == 200
        assert users.call(name, "GET", f"/dags/{stream_dag(TRIED)}").status_code == 200
        assert any(view["name"] == "Recount" for view in views(users.call(name, "GET", "/plugins").json()))
        assert users.call(name, "GET", "/connections").status_code == 403
    assert users.clients["stranger"].get(f"{PAGES}/").status_code == 403
    assert users.call("stranger", "GET", f"/dags/{stream_dag(TRIED)}").status_code == 403


def views(plugins: dict[str, Any]) -> list[dict[str, Any]]:
    return [view for plugin in plugins["plugins"] for view in plugin["external_views"]]


OF_ROLES = [(VIEWER, set()), (OPERATOR, {"Start", "Stop", "Audit"}), (AUDITOR, {"Audit", "Backfill"})]


@pytest.mark.parametrize(("name", "usable"), OF_ROLES)
def test_a_page_has_the_buttons_of_its_reader(users: Users, name: str, usable: set[str]) -> None:
    found = re.findall(r'<button type="submit" (disabled)?[^>]*>(\w+)</button>', users.clients[name].get(PAGE).text)
    assert {label for _, label in found} == {"Start", "Stop", "Audit", "Backfill"}
    assert {label for disabled, label in found if not disabled} == usable


def test_in_a_browser_a_user_logs_in_and_presses_what_the_role_may(users: Users, browser: Browser) -> None:
    context = browser.new_context()
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.goto(users.deployment.airflow.url)
    page.get_by_label("Username").fill(AUDITOR)
    page.get_by_label("Password").fill(users.passwords[AUDITOR])
    page.get_by_role("button", name="Sign In").click()
    page.get_by_role("link", name="Dags").first.wait_for()
    page.goto(f"{users.deployment.airflow.url}{PAGE}")
    buttons = page.locator(".buttons button")
    assert {button.inner_text() for button in buttons.all() if button.is_enabled()} == dict(OF_ROLES)[AUDITOR]
    page.get_by_role("button", name="Backfill", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text(f"{backfill_dag(TRIED)} was started", timeout=60_000)
    runs = users.deployment.airflow.request("GET", f"/api/v2/dags/{backfill_dag(TRIED)}/dagRuns?order_by=-run_after")
    assert runs["dag_runs"][0]["triggering_user_name"] == AUDITOR
    context.close()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("order", "allowed"),
    [("stop", {OPERATOR}), ("start", {OPERATOR}), ("audit", {OPERATOR, AUDITOR}), ("backfill", {AUDITOR})],
)
def test_an_order_from_the_page_is_taken_from_those_who_may_give_it(
    users: Users, name: str, order: str, allowed: set[str]
) -> None:
    assert users.button(name, order) == (303 if name in allowed else 403)


def test_marking_the_task_of_a_stream_stops_it_so_only_an_operator_may(users: Users) -> None:
    dag = stream_dag(TRIED)
    task = f"/dags/{dag}/dagRuns/{users.deployment.dag_runs.trigger(dag)}/taskInstances/run"
    told = [users.call(name, "PATCH", task, {"new_state": "failed"}).status_code for name in NAMES]
    assert told == [403, 200, 403]


@pytest.mark.parametrize("dag", [backfill_dag(TRIED), findings_dag(TRIED)])
def test_what_waits_for_a_person_is_answered_by_an_auditor_in_that_users_name(users: Users, dag: str) -> None:
    task = users.waiting(dag)
    answer = {"chosen_options": ["Approve"], "params_input": {"reason": "known"} if dag == findings_dag(TRIED) else {}}
    for name in (VIEWER, OPERATOR):
        assert users.call(name, "PATCH", f"{task}/-1/hitlDetails", answer).status_code == 403
        assert users.call(name, "PATCH", task, {"new_state": "success"}).status_code == 403
        each = {"task_id": "approval", "dag_id": dag, "dag_run_id": task.split("/")[4], "new_state": "success"}
        many = {"actions": [{"action": "update", "entities": [each]}]}
        bulk = users.call(name, "PATCH", "/dags/~/dagRuns/~/taskInstances", many)
        assert bulk.status_code == 403 or [one["status_code"] for one in bulk.json()["update"]["errors"]] == [403]
    taken = users.call(AUDITOR, "PATCH", f"{task}/-1/hitlDetails", answer)
    assert taken.status_code == 200, taken.text
    assert taken.json()["responded_by"]["name"] == AUDITOR


def test_the_roles_are_brought_in_step_again(users: Users) -> None:
    place = f"/auth/fab/v1/roles/{VIEWER}"
    known = users.deployment.airflow.request("GET", place)
    more = {"action": {"name": "can_edit"}, "resource": {"name": "DAGs"}}
    users.deployment.airflow.request("PATCH", place, {"name": VIEWER, "actions": [*known["actions"], more]})
    assert users.apply_roles() == {VIEWER: "0 added, 1 removed", OPERATOR: "unchanged", AUDITOR: "unchanged"}
