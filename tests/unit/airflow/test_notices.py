"""Whatever is wrong is told to each notifier of an installation; the webhook of docs/airflow.md receives each kind."""

from __future__ import annotations

import json
import logging
import re
import runpy
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.standard.operators import hitl
from airflow.sdk import BaseNotifier
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput, TaskDeferred
from tests.unit.airflow.test_nights import Task, issue

from recount.airflow.audits import VerdictOperator
from recount.airflow.notices import SETTING, notifiers, notify
from recount.airflow.streams import StreamOperator
from recount.declare.limits import Health
from recount.declare.registry import DEFAULT_MODULES
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings

TOLD: list[str] = []


class Listed(BaseNotifier):
    """Remembers what it is told, as a template of a failed task would read it."""

    def notify(self, context: Any) -> None:
        TOLD.append(context["exception"])


class Broken(BaseNotifier):
    """A service that is down."""

    def notify(self, context: Any) -> None:  # noqa: ARG002 - it fails before it looks
        raise ConnectionError("no answer")


both = [Broken(), Listed()]
one = Listed()
none = 7


def test_a_notifier_that_fails_does_not_keep_the_next_from_being_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    assert notifiers() == []
    monkeypatch.setenv(SETTING, f"{__name__}:one")
    assert notifiers() == [one], "a single one needs no list"
    monkeypatch.setenv(SETTING, f"{__name__}:both")
    TOLD.clear()
    with caplog.at_level(logging.ERROR):
        notify({}, "stream revenue: degraded; lag 2 records, limit 1")
    assert TOLD == ["stream revenue: degraded; lag 2 records, limit 1"]
    assert "a notifier failed" in caplog.text


@pytest.mark.parametrize("place", ["nowhere:one", f"{__name__}:nothing", f"{__name__}:none", "no-colon", ":"])
def test_a_place_without_a_notifier_is_refused(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv(SETTING, place)
    with pytest.raises(Terminal):
        notifiers()


ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "airflow.md").read_text()


class Sink(ThreadingHTTPServer):
    """Receives what is posted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.received: list[dict[str, str]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Sink

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(json.loads(body))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: what it received is asked for."""


@pytest.fixture
def sink(set_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    """The server, and the module of the page as the setting's notifiers."""
    [source] = re.findall(r"```python\n(import os.*?)```", PAGE, re.DOTALL)
    alerts = ModuleType("alerts")
    exec(source, vars(alerts))  # noqa: S102 - it is our own page
    monkeypatch.setitem(sys.modules, "alerts", alerts)
    monkeypatch.setenv(SETTING, "alerts:notifiers")
    with Sink() as server:
        monkeypatch.setenv("ALERTS_URL", f"http://127.0.0.1:{server.server_address[1]}/alerts")
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def of_orders(set_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("RECOUNT_TOPOLOGIES", "topologies.orders")
    return set_settings


def context(dag: str, **more: Any) -> Any:
    return {"dag_run": SimpleNamespace(dag_id=dag), **more}


def test_a_red_audit_is_told_with_the_finding_that_is_open(sink: Sink, of_orders: Settings) -> None:
    issue(of_orders, "order-counts", "a-1", outcome="violation")
    verdict = VerdictOperator(task_id="verdict", stream="order-counts", audit="a-1", left_out="")
    with pytest.raises(AirflowFailException) as failure:
        verdict.execute(context("night__orders", ti=Task((), 1)))
    # as Airflow calls the callbacks of a task whose last try has failed
    for told in notifiers():
        told(context("night__orders", exception=failure.value))
    [received] = sink.received
    assert received["dag"] == "night__orders"
    assert re.search(r"lost.*ann.*orders-0@7.*findings__order-counts", received["text"], re.DOTALL)


@pytest.mark.parametrize("file", sorted(file.name for file in (ROOT / "dags").glob("*.py")))
def test_every_task_that_fails_is_told(
    sink: Sink, of_orders: Settings, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setenv("RECOUNT_TOPOLOGIES", DEFAULT_MODULES)  # which has groups
    bag = DagBag(dag_folder=str(ROOT / "dags" / file), bundle_name="dags", load_op_links=False)
    tasks = [task for dag in bag.dags.values() for task in dag.tasks]
    assert tasks and not bag.import_errors
    for task in tasks:
        assert [type(one).__name__ for one in task.on_failure_callback] == ["Webhook"], task


@pytest.mark.parametrize(("outcome", "status"), [("degraded", 200), ("recovered", 200), ("degraded", 500)])
def test_a_degraded_stream_is_told_and_that_it_is_well_again_and_a_sink_that_refuses_stops_nothing(
    sink: Sink, of_orders: Settings, outcome: str, status: int
) -> None:
    sink.status = status
    operator = StreamOperator(task_id="run", stream="order-counts", application=Path("job.py"), limits=Health())
    event = {"outcome": outcome, "reasons": ["lag 12 records, limit 10"], "healthy_ms": 1}
    with pytest.raises(TaskDeferred):
        operator.found(context("stream__order-counts"), event, relaunched=0)
    text = f"stream order-counts: {outcome}; lag 12 records, limit 10"
    assert sink.received == [{"dag": "stream__order-counts", "text": text}]


@pytest.mark.parametrize("kind", ["backfill", "findings"])
def test_what_waits_for_a_person_is_told(
    sink: Sink, of_orders: Settings, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **_: None)  # Airflow's server, which is not there
    approval = runpy.run_path(str(ROOT / "dags" / "repairs.py"))[f"{kind}__order-counts"].get_task("approval")
    asked = context(approval.dag_id, task=approval, task_instance=SimpleNamespace(id="ti"))
    with pytest.raises(TaskAwaitingInput):
        approval.execute(asked)
    [received] = sink.received
    assert received["dag"] == approval.dag_id
    assert received["text"].startswith(f"{approval.subject} It waits for an answer under Required Actions. ")
