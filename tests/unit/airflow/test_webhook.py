"""The webhook of docs/airflow.md: a real HTTP server receives each kind of notice, made as the DAGs make it."""

from __future__ import annotations

import asyncio
import json
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
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput, TaskDeferred
from tests.unit.airflow.test_nights import Task, issue

from recount.airflow.audits import VerdictOperator
from recount.airflow.notices import SETTING, notifiers, tell_of_deadline
from recount.airflow.streams import StreamOperator
from recount.declare.limits import Health
from recount.declare.registry import DEFAULT_MODULES
from recount.runtime.settings import Settings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "airflow.md").read_text()


class Sink(ThreadingHTTPServer):
    """Receives what is posted."""

    def __init__(self, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.received: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/alerts"


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
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    """The server, and the module of the page as the setting's notifiers."""
    [source] = re.findall(r"```python\n(import os.*?)```", PAGE, re.DOTALL)
    alerts = ModuleType("alerts")
    exec(source, vars(alerts))  # noqa: S102 - it is our own page
    monkeypatch.setitem(sys.modules, "alerts", alerts)
    monkeypatch.setenv(SETTING, "alerts:notifiers")
    with Sink() as server:
        monkeypatch.setenv("ALERTS_URL", server.url)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    folders = dict.fromkeys(("data", "checkpoints", "reports", "logs", "run", "jars"), str(tmp_path))
    made = Settings(profile="embedded", bootstrap_servers="127.0.0.1:1", topologies="topologies.orders", **folders)
    for name, value in made.to_environment().items():
        if name != SETTING:
            monkeypatch.setenv(name, value)
    return made


def context(dag: str, **more: Any) -> Any:
    return {"dag_run": SimpleNamespace(dag_id=dag), **more}


def dag_file(name: str) -> dict[str, Any]:
    """What a DAG file has at its top level, and so its DAGs."""
    return runpy.run_path(str(ROOT / "dags" / name))


def test_a_red_audit_is_told_with_the_finding_that_is_open(sink: Sink, settings: Settings) -> None:
    issue(settings, "order-counts", "a-1", outcome="violation")
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
    sink: Sink, settings: Settings, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setenv("RECOUNT_TOPOLOGIES", DEFAULT_MODULES)  # which has groups
    bag = DagBag(dag_folder=str(ROOT / "dags" / file), bundle_name="dags", load_op_links=False)
    tasks = [task for dag in bag.dags.values() for task in dag.tasks]
    assert tasks and not bag.import_errors
    for task in tasks:
        assert [type(one).__name__ for one in task.on_failure_callback] == ["Webhook"], task


@pytest.mark.parametrize("outcome", ["degraded", "recovered"])
def test_a_degraded_stream_is_told_and_that_it_is_well_again(sink: Sink, settings: Settings, outcome: str) -> None:
    operator = StreamOperator(task_id="run", stream="order-counts", application=Path("job.py"), limits=Health())
    event = {"outcome": outcome, "reasons": ["lag 12 records, limit 10"], "healthy_ms": 1}
    with pytest.raises(TaskDeferred):
        operator.found(context("stream__order-counts"), event, relaunched=0)
    assert sink.received == [
        {"dag": "stream__order-counts", "text": f"stream order-counts: {outcome}; lag 12 records, limit 10"}
    ]


@pytest.mark.parametrize("kind", ["backfill", "findings"])
def test_what_waits_for_a_person_is_told(
    sink: Sink, settings: Settings, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **_: None)  # Airflow's server, which is not there
    approval = dag_file("repairs.py")[f"{kind}__order-counts"].get_task("approval")
    asked = context(approval.dag_id, task=approval, task_instance=SimpleNamespace(id="ti"))
    with pytest.raises(TaskAwaitingInput):
        approval.execute(asked)
    [received] = sink.received
    assert received["dag"] == approval.dag_id
    assert received["text"].startswith(f"{approval.subject} It waits for an answer under Required Actions. ")


def test_a_missed_deadline_is_told(sink: Sink) -> None:
    missed: Any = {"dag_run": {"dag_id": "night__orders", "dag_run_id": "scheduled__1"}, "deadline": {}}
    asyncio.run(tell_of_deadline(context=missed))
    assert sink.received == [
        {"dag": "night__orders", "text": "night__orders: the run scheduled__1 has not ended by its deadline"}
    ]


def test_a_sink_that_refuses_stops_nothing(sink: Sink, settings: Settings) -> None:
    sink.status = 500
    operator = StreamOperator(task_id="run", stream="order-counts", application=Path("job.py"), limits=Health())
    event = {"outcome": "degraded", "reasons": ["lag"], "healthy_ms": 1}
    with pytest.raises(TaskDeferred):
        operator.found(context("stream__order-counts"), event, relaunched=0)
    assert len(sink.received) == 1
