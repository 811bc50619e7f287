"""A driver, a process or a pod, outlives who launched it, is found by its record, and no other is ever taken for it."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.eventually import eventually
from tests.fake_kubernetes import FakeKubernetes

from recount.airflow.drivers import DriverPod, DriverProcess, find_driver, log_of, record_of
from recount.airflow.submission import Submission, driver_environment
from recount.runtime.errors import Terminal, Transient
from recount.runtime.settings import Settings

SLEEPS = [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(60)"]
IGNORES_TERM = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
]


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return record_of(str(tmp_path / "run"), "orders")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return log_of(str(tmp_path / "logs"), "orders")


def launched(command: list[str], record: Path, log: Path, times: int = 1) -> DriverProcess:
    driver = DriverProcess.launch(command, dict(os.environ), record=record, log=log)
    while log.read_text().count("up") < times:
        assert driver.is_alive
    return driver


def test_a_driver_is_found_by_its_record_until_it_is_ended(record: Path, log: Path) -> None:
    driver = launched(SLEEPS, record, log)
    assert DriverProcess.find(record) == driver
    assert driver.is_alive
    assert os.getsid(driver.pid) == driver.pid != os.getsid(0)
    driver.end()
    assert not driver.is_alive
    deaf = launched(IGNORES_TERM, record, log, times=2)
    deaf.end(patience_s=0.2)
    assert not deaf.is_alive
    assert log.read_text().count("up") == 2, "the log is appended to"


def test_another_process_with_the_same_pid_is_not_the_driver(record: Path) -> None:
    someone = DriverProcess(pid=os.getpid(), started=1.0, host="here", identity="another boot/1")
    assert not someone.is_alive
    someone.end()


def test_a_driver_has_not_died_when_the_clock_was_set(record: Path, log: Path) -> None:
    driver = launched(SLEEPS, record, log)
    for step_s in (-60, -0.05, 0.05, 60):
        record.write_text(json.dumps(asdict(replace(driver, started=driver.started + step_s))))
        found = DriverProcess.find(record)
        assert found is not None
        assert found.is_alive
    driver.end()


def test_a_record_of_another_host_or_a_broken_one_names_no_driver(record: Path, log: Path) -> None:
    assert DriverProcess.find(record) is None
    driver = launched(SLEEPS, record, log)
    driver.end()
    record.write_text(json.dumps(asdict(replace(driver, host="elsewhere"))))
    assert DriverProcess.find(record) is None
    record.write_text("{")
    assert DriverProcess.find(record) is None


def test_a_driver_learns_nothing_of_airflow() -> None:
    environment = {"AIRFLOW__CORE__FERNET_KEY": "x", "_AIRFLOW_Y": "y", "RECOUNT_RUN": "r", "PATH": "p"}
    assert driver_environment(environment) == {"RECOUNT_RUN": "r", "PATH": "p"}


NAMESPACE = "streams"
OFTEN_S = 0.1
# makes the pod, as Spark does, and leaves it; its container runs the arguments of the job
SPARK_SUBMIT = """#!{python}
import json, sys
from urllib.request import Request, urlopen

words = sys.argv[1:]
said = dict(word.split("=", 1) for word in words if word.startswith("spark."))
job = next(place for place, word in enumerate(words) if word.endswith("/job.py"))
container = {{"name": "driver", "image": "recount", "args": words[job + 1:]}}
pod = {{"metadata": {{"name": said["spark.kubernetes.driver.pod.name"]}}, "spec": {{"containers": [container]}}}}
place = words[words.index("--master") + 1].removeprefix("k8s://")
place += "/api/v1/namespaces/" + said["spark.kubernetes.namespace"] + "/pods"
urlopen(Request(place, json.dumps(pod).encode(), method="POST"))
"""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeKubernetes]:
    """One that the provider's client finds by a kubeconfig, and Submission by a connection."""
    for folder in ("kubernetes", "programs"):
        (tmp_path / folder).mkdir()
    with FakeKubernetes(folder=tmp_path / "kubernetes", environment=dict(os.environ)) as made:
        (tmp_path / "kubeconfig").write_text(made.kubeconfig)
        (tmp_path / "programs" / "spark-submit").write_text(SPARK_SUBMIT.format(python=sys.executable))
        (tmp_path / "programs" / "spark-submit").chmod(0o755)
        extra = {"deploy-mode": "cluster", "namespace": NAMESPACE}
        connection = {"conn_type": "spark", "host": f"k8s://{made.url}", "extra": extra}
        monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER", "False")
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", str(tmp_path / "kubeconfig"))
        yield made


@pytest.fixture
def pod(cluster: FakeKubernetes, tmp_path: Path) -> DriverPod:
    """One that runs, with its record."""
    made = DriverPod.named("recount stream orders", NAMESPACE)
    cluster.has(made.pod, NAMESPACE, "Running")
    made.write(record_of(str(tmp_path), "orders"))
    return made


@pytest.fixture
def submitted(cluster: FakeKubernetes, settings: Settings) -> Callable[..., Submission]:
    """A job whose container runs the given words."""
    return lambda *words: Submission(application=Path("job.py"), arguments=words, name="orders", settings=settings)


def phases(cluster: FakeKubernetes) -> list[str]:
    return [one["status"]["phase"] for one in cluster.of("pods")]


@pytest.mark.parametrize("name", ["recount stream orders", "recount group " + 9 * "a-long-name-", "recount stream 7"])
def test_a_pod_has_a_name_that_kubernetes_takes_and_no_other_has(name: str) -> None:
    first, second = DriverPod.named(name, NAMESPACE).pod, DriverPod.named(name, NAMESPACE).pod
    assert first != second
    assert first.startswith("recount-") and first.endswith("-driver") and len(first) <= 63
    assert first.replace("-", "").isalnum() and "--" not in first and first == first.lower()


@pytest.mark.parametrize(
    ("phase", "is_alive"), [("Pending", True), ("Unknown", True), ("Failed", False), ("Succeeded", False), ("", False)]
)
def test_it_is_alive_until_it_has_ended_or_is_gone(
    cluster: FakeKubernetes, pod: DriverPod, phase: str, is_alive: bool
) -> None:
    if phase:
        cluster.has(pod.pod, NAMESPACE, phase)
    else:
        cluster.loses(pod.pod, NAMESPACE)
    assert pod.is_alive is is_alive


def test_it_is_ended_with_patience_and_one_that_is_gone_is_left_alone(cluster: FakeKubernetes, pod: DriverPod) -> None:
    assert pod.is_alive
    pod.end(patience_s=7)
    assert cluster.asked[-1].startswith("DELETE ") and "gracePeriodSeconds=7" in cluster.asked[-1]
    assert not pod.is_alive
    pod.end()


def test_why_it_has_failed_is_told_with_its_exit_code_and_where_its_log_is(
    cluster: FakeKubernetes, pod: DriverPod
) -> None:
    cluster.has(pod.pod, NAMESPACE, "Failed", terminated={"exitCode": 137, "reason": "OOMKilled"})
    told = pod.failure() or ""
    assert "exit code 137, OOMKilled" in told and f"kubectl logs --namespace {NAMESPACE} {pod.pod}" in told
    cluster.has(pod.pod, NAMESPACE, "Succeeded")
    assert pod.failure() is None
    cluster.loses(pod.pod, NAMESPACE)
    assert "gone" in (pod.failure() or "")


@pytest.mark.parametrize(("status", "error"), [(500, Transient), (429, Transient), (403, Terminal), (401, Terminal)])
def test_a_cluster_that_does_not_answer_is_asked_again_and_one_that_refuses_is_not(
    cluster: FakeKubernetes, pod: DriverPod, status: int, error: type[Exception]
) -> None:
    cluster.refusing = status
    with pytest.raises(error):
        _ = pod.is_alive


def test_a_driver_is_launched_and_left_and_others_find_and_end_it(
    cluster: FakeKubernetes, submitted: Callable[..., Submission], tmp_path: Path
) -> None:
    record = record_of(str(tmp_path), "orders")
    launched = submitted("sleep", "60").launch(record=record, log=tmp_path / "log")
    found = find_driver(record)
    assert found is not None and found == launched and found.is_alive
    assert eventually(lambda: phases(cluster), ["Running"], limit_s=20) == ["Running"]
    found.end()
    assert cluster.of("pods") == [] and not found.is_alive


def test_a_job_that_has_failed_is_told_its_pod_stays_for_its_log_and_one_that_no_retry_can_help_is_final(
    cluster: FakeKubernetes, submitted: Callable[..., Submission]
) -> None:
    assert "exit code 3" in (submitted("sh", "-c", "exit 3").run(OFTEN_S) or "")
    assert phases(cluster) == ["Failed"]
    with pytest.raises(Terminal, match="exit code 1,"):
        submitted("sh", "-c", "exit 1").run(OFTEN_S)


def running(cluster: FakeKubernetes, job: Submission) -> tuple[Submission, threading.Thread, list[str | None]]:
    """``job``, who waits for it, and what it has been told."""
    told: list[str | None] = []
    waiting = threading.Thread(target=lambda: told.append(job.run(OFTEN_S)))
    waiting.start()
    assert eventually(lambda: phases(cluster), ["Running"], limit_s=20) == ["Running"]
    return job, waiting, told


def test_a_job_that_is_killed_takes_its_pod_along(
    cluster: FakeKubernetes, submitted: Callable[..., Submission]
) -> None:
    job, waiting, told = running(cluster, submitted("sleep", "60"))
    job.kill()
    waiting.join(20)
    # it may have been killed before spark-submit had ended
    assert cluster.of("pods") == [] and told[0]


def test_a_cluster_that_is_silent_for_a_while_is_waited_for(
    cluster: FakeKubernetes, submitted: Callable[..., Submission]
) -> None:
    _, waiting, told = running(cluster, submitted("sh", "-c", "sleep 2"))
    cluster.refusing = 503
    asked = len(cluster.asked)
    assert eventually(lambda: len(cluster.asked) > asked + 2, True)
    cluster.refusing = 0
    waiting.join(30)
    assert told == [None] and cluster.of("pods") == [], "a pod whose job is done is taken away"
