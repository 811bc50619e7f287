"""The buttons of a stream's page start runs with the rights of the user, and only from that page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi.testclient import TestClient
from tests.shown_shop import ALICE, ShownShop, shown_shop

from recount.airflow.links import PAGES
from recount.airflow.page_orders import DagState, is_token_of, token_for

STREAM = "revenue-by-region"
PAGE = f"{PAGES}/streams/{STREAM}"
MALLORY = SimpleAuthManagerUser(username="mallory", role="admin")


@pytest.fixture
def shop(tmp_path: Path) -> ShownShop:
    return shown_shop(tmp_path)


@pytest.fixture
def client(shop: ShownShop) -> Iterator[TestClient]:
    with shop.served() as app:
        yield TestClient(app, follow_redirects=False)


def token(client: TestClient) -> str:
    """That of the forms of the page."""
    [found] = set(re.findall(r'name="token" value="([^"]+)"', client.get(PAGE).text))
    return found


@pytest.mark.parametrize(
    ("order", "dag", "conf"),
    [
        ("start", "stream_control", {"stream": STREAM, "order": "start"}),
        ("stop", "stream_control", {"stream": STREAM, "order": "stop"}),
        ("audit", f"audit__{STREAM}", {}),
        ("backfill", f"backfill__{STREAM}", {}),
    ],
)
def test_a_button_starts_its_dag_in_the_name_of_the_user(
    shop: ShownShop, client: TestClient, order: str, dag: str, conf: dict[str, str]
) -> None:
    answer = client.post(f"{PAGE}/{order}", data={"token": token(client)})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{PAGE}?started={order}")
    assert shop.runs.started == [(dag, conf, "alice")]
    assert f"{dag} was started" in client.get(answer.headers["location"]).text


@pytest.mark.parametrize("given", [{}, {"token": ""}, {"token": "made.up.token"}, {"token": token_for(MALLORY)}])
def test_an_order_without_the_token_of_the_page_is_refused(
    shop: ShownShop, client: TestClient, given: dict[str, str]
) -> None:
    answer = client.post(f"{PAGE}/stop", data=given)
    assert answer.status_code == 403
    assert "does not come from the page of the stream" in answer.text
    assert shop.runs.started == []


def test_a_token_is_of_its_user_only() -> None:
    assert is_token_of(ALICE, token_for(ALICE))
    assert not is_token_of(MALLORY, token_for(ALICE))
    assert not is_token_of(ALICE, None)


def test_nothing_is_started_by_a_link(shop: ShownShop, client: TestClient) -> None:
    assert client.get(f"{PAGE}/stop?token={token(client)}").status_code == 405
    assert shop.runs.started == []


def test_a_user_who_may_not_start_a_dag_sees_why_and_is_refused(shop: ShownShop, client: TestClient) -> None:
    shop.runs.refused = {(f"backfill__{STREAM}", "alice")}
    assert f"you may not start runs of backfill__{STREAM}" in client.get(PAGE).text
    assert client.post(f"{PAGE}/backfill", data={"token": token(client)}).status_code == 403
    assert client.post(f"{PAGE}/audit", data={"token": token(client)}).status_code == 303
    assert [dag for dag, _, _ in shop.runs.started] == [f"audit__{STREAM}"]


@pytest.mark.parametrize(
    ("paused", "order"), [("stream_control", "stop"), (f"stream__{STREAM}", "start"), (f"audit__{STREAM}", "audit")]
)
def test_a_paused_dag_is_not_started_for_its_run_would_wait_for_ever(
    shop: ShownShop, client: TestClient, paused: str, order: str
) -> None:
    shop.runs.known[paused] = DagState(paused=True, next_ms=None)
    assert f"{paused} is paused in Airflow" in client.get(PAGE).text
    answer = client.post(f"{PAGE}/{order}", data={"token": token(client)})
    assert answer.status_code == 409
    assert shop.runs.started == []


def test_an_archive_has_no_audit_and_no_stream_an_order_that_there_is_not(client: TestClient) -> None:
    given = {"token": token(client)}
    assert client.post(f"{PAGES}/streams/archive-orders/audit", data=given).status_code == 404
    assert client.post(f"{PAGES}/streams/unknown/stop", data=given).status_code == 404
    assert client.post(f"{PAGE}/drop", data=given).status_code == 422


def test_a_page_that_says_what_was_started_says_nothing_else(client: TestClient) -> None:
    assert "was started" not in client.get(f"{PAGE}?started=<script>").text
