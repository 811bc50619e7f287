"""A driver that is a pod is found by its record, asked for at the cluster's API, and ended there."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from recount.airflow.drivers import DriverProcess, find_driver, record_of
from recount.airflow.pods import DriverPod
from recount.core.errors import Terminal, Transient

NAMESPACE = "streams"


@dataclass
class Cluster:
    """The API of a cluster that has these pods; ``status`` other than 200 is its answer to everything."""

    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    status: int = 200
    asked: list[str] = field(default_factory=list)

    def answer(self, method: str, path: str) -> tuple[int, dict[str, Any]]:
        place, _, query = path.partition("?")
        self.asked.append(f"{method} {place}")
        *_, namespace, kind, name = place.split("/")
        known = self.pods.get(name) if (namespace, kind) == (NAMESPACE, "pods") else None
        if self.status != 200 or known is None:
            return self.status if self.status != 200 else 404, {"kind": "Status", "status": "Failure"}
        if method == "DELETE":
            self.asked.append(query)
            del self.pods[name]
        return 200, {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "status": known}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cluster]:
    """One that the provider's client finds by a kubeconfig."""
    made = Cluster()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET")

        def do_DELETE(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._answer("DELETE")

        def _answer(self, method: str) -> None:
            status, content = made.answer(method, self.path)
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    place = {"server": f"http://127.0.0.1:{server.server_port}"}
    config = {
        "clusters": [{"name": "here", "cluster": place}],
        "users": [{"name": "airflow", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "airflow"}}],
        "current-context": "here",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER", "False")
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", str(tmp_path / "kubeconfig"))
    yield made
    server.shutdown()
    server.server_close()


@pytest.fixture
def pod(cluster: Cluster, tmp_path: Path) -> DriverPod:
    """One that runs, with its record."""
    made = DriverPod.named("recount stream orders", NAMESPACE)
    cluster.pods[made.pod] = {"phase": "Running"}
    made.write(record_of(str(tmp_path), "orders"))
    return made


@pytest.mark.parametrize("name", ["recount stream orders", "recount group " + 9 * "a-long-name-", "recount stream 7"])
def test_a_pod_has_a_name_that_kubernetes_takes_and_no_other_has(name: str) -> None:
    first, second = DriverPod.named(name, NAMESPACE).pod, DriverPod.named(name, NAMESPACE).pod
    assert first != second
    assert first.startswith("recount-") and first.endswith("-driver") and len(first) <= 63
    assert first.replace("-", "").isalnum() and "--" not in first and first == first.lower()


def test_it_is_found_by_its_record_as_a_process_is_by_its_own(pod: DriverPod, tmp_path: Path) -> None:
    record = record_of(str(tmp_path), "orders")
    assert find_driver(record) == pod
    assert DriverProcess.find(record) is None
    assert find_driver(record_of(str(tmp_path), "others")) is None


@pytest.mark.parametrize(
    ("phase", "is_alive"), [("Pending", True), ("Unknown", True), ("Failed", False), (None, False)]
)
def test_it_is_alive_until_it_has_ended_or_is_gone(
    cluster: Cluster, pod: DriverPod, phase: str | None, is_alive: bool
) -> None:
    if phase is None:
        del cluster.pods[pod.pod]
    else:
        cluster.pods[pod.pod] = {"phase": phase}
    assert pod.is_alive is is_alive


def test_that_it_is_alive_is_not_asked_all_the_time(cluster: Cluster, pod: DriverPod) -> None:
    assert [pod.is_alive for _ in range(50)] == 50 * [True]
    assert len(cluster.asked) == 1


def test_it_is_ended_with_patience_and_one_that_is_gone_is_left_alone(cluster: Cluster, pod: DriverPod) -> None:
    assert pod.is_alive
    pod.end(patience_s=7)
    assert "gracePeriodSeconds=7" in cluster.asked[-1]
    assert not pod.is_alive
    pod.end()


def test_why_it_has_failed_is_told_with_its_exit_code_and_where_its_log_is(cluster: Cluster, pod: DriverPod) -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    container = {"name": "driver", "image": "recount", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
    cluster.pods[pod.pod] = {"phase": "Failed", "containerStatuses": [container]}
    told = pod.failure() or ""
    assert "exit code 137, OOMKilled" in told and f"kubectl logs --namespace {NAMESPACE} {pod.pod}" in told
    cluster.pods[pod.pod] = {"phase": "Succeeded"}
    assert pod.failure() is None
    del cluster.pods[pod.pod]
    assert "gone" in (pod.failure() or "")


@pytest.mark.parametrize(("status", "error"), [(500, Transient), (429, Transient), (403, Terminal), (401, Terminal)])
def test_a_cluster_that_does_not_answer_is_asked_again_and_one_that_refuses_is_not(
    cluster: Cluster, pod: DriverPod, status: int, error: type[Exception]
) -> None:
    cluster.status = status
    with pytest.raises(error):
        _ = pod.is_alive


def test_a_cluster_that_airflow_does_not_know_is_told(pod: DriverPod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER", "True")
    with pytest.raises(Terminal) as refused:
        _ = pod.is_alive
    assert "IN_CLUSTER" in refused.value.remedy
