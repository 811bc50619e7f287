"""What a user of Airflow does in Chromium: a profile of its own with one audited stream, a login, a page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page, expect

from recount.airflow.links import audit_dag, backfill_dag, stream_dag
from recount.declare.registry import declared
from recount.kafka.connection import Connection
from recount.kafka.lags import lags_of
from recount.profile.dag_runs import DagRuns
from recount.profile.demo import OrderFlow
from recount.profile.demo_steps import TOPOLOGIES
from recount.profile.embedded import Profile
from recount.profile.embedded_airflow import EmbeddedAirflow
from recount.profile.home import Home, Project
from recount.runtime.errors import Transient

STREAM = "revenue-by-region"
_PATIENCE_S = 300.0
_TIMEOUT_MS = 60_000


@dataclass(frozen=True, kw_only=True)
class Shop:
    """An Airflow in which one stream runs, has been audited, and waits for the approval of a backfill."""

    airflow: EmbeddedAirflow
    flow: OrderFlow
    runs: DagRuns
    backfill: str


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Iterator[Shop]:
    """20,000 orders, some of them too late or bad, streamed and audited by the DAGs, on a secured broker."""
    flow = OrderFlow(end_ms=time.time_ns() // 1_000_000, records=20_000, bad_every=997)
    home = Home(path=tmp_path_factory.mktemp("browser"))
    with Profile(home=home, project=project, topologies=TOPOLOGIES, secure=True) as profile:
        assert profile.airflow is not None
        runs = DagRuns(profile.airflow.api)
        runs.succeed("topics", _PATIENCE_S)
        runs.unpause(stream_dag(STREAM))
        flow.produce(profile.kafka.listeners.keeper(), declared(TOPOLOGIES).topics["orders"])
        _wait_until_read(Connection.of(profile.settings))
        runs.unpause(backfill_dag(STREAM))
        runs.succeed(audit_dag(STREAM), _PATIENCE_S, through="now")
        backfill = runs.wait_for_next(backfill_dag(STREAM), set(), _PATIENCE_S)
        yield Shop(airflow=profile.airflow, flow=flow, runs=runs, backfill=backfill)


def _wait_until_read(connection: Connection) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not _is_read(connection):
        assert time.monotonic() < deadline, "the stream has not read the orders in time"
        time.sleep(1)


def _is_read(connection: Connection) -> bool:
    try:
        parts = lags_of(connection, {STREAM: ["orders"]})[STREAM].partitions.values()
    except Transient:  # the group has no coordinator yet
        return False
    return all(part.lag == 0 and part.committed is not None for part in parts)


@pytest.fixture(scope="module")
def page(browser: Browser, shop: Shop) -> Iterator[Page]:
    """A page of a user who has logged in."""
    opened = browser.new_page(viewport={"width": 1400, "height": 900})
    opened.set_default_timeout(_TIMEOUT_MS)
    expect.set_options(timeout=_TIMEOUT_MS)
    opened.goto(shop.airflow.url)
    opened.get_by_label("Username").fill(shop.airflow.username)
    opened.locator("input[type=password]").fill(shop.airflow.password)
    opened.get_by_role("button", name="Sign in").click()
    opened.get_by_role("link", name="Dags").first.wait_for()
    yield opened
    opened.close()


def loaded(page: Page) -> list[str]:
    """What the page and its frames have asked for, as Chromium itself counts it.

    A handler of ``request`` events would run in a greenlet for each of them, and such runs have ended in a segfault.
    """
    entries = "performance.getEntriesByType('resource').map(entry => entry.name)"
    found = [url for frame in page.frames for url in [frame.url, *frame.evaluate(entries)]]
    assert found, "Chromium has counted nothing"
    return found
