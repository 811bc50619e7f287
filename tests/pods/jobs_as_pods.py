"""A job of Spark on a Kubernetes of this machine: driver and executors are pods that the image's entry point starts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.fake_kubernetes import FakeKubernetes

from recount.airflow.submission import Submission
from recount.declare.limits import Resources
from recount.profile.daemon import LOOPBACK
from recount.profile.embedded import embedded_settings
from recount.profile.home import Home, Project

pytestmark = pytest.mark.timeout(600)

NAMESPACE = "streams"
JOB = """
import os, sys
from pathlib import Path

from recount.runtime.settings import Settings
from recount.tables.spark_session import spark_session

told = Path(sys.argv[1])
session = spark_session(Settings.from_environment(os.environ), "job")
rows = session.range(1000, numPartitions=2).selectExpr("id", "id % 7 AS rest")
rows.mapInArrow(lambda batches: batches, rows.schema).write.format("delta").save(str(told / "table"))
(told / "done").write_text(str(session.read.format("delta").load(str(told / "table")).count()))
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKubernetes]:
    folder = tmp_path / "kubernetes"
    folder.mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": LOOPBACK}
    with FakeKubernetes(folder=folder, environment=environment) as made:
        (folder / "kubeconfig").write_text(made.kubeconfig)
        extra = {"deploy-mode": "cluster", "namespace": NAMESPACE}
        connection = {"conn_type": "spark", "host": f"k8s://{made.url}", "extra": extra}
        monkeypatch.setenv("PATH", path)
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER", "False")
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", str(folder / "kubeconfig"))
        yield made


def submission(cluster: FakeKubernetes, project: Project, folder: Path) -> Submission:
    (folder / "job.py").write_text(JOB)
    java = f"-Djdk.net.hosts.file={cluster.hosts} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    conf = {
        "spark.kubernetes.container.image": "recount",
        "spark.kubernetes.authenticate.driver.serviceAccountName": "recount-driver",
        # of a pod; the API is not at its usual place there
        "spark.kubernetes.driver.master": cluster.url,
        "spark.driver.defaultJavaOptions": java,
        "spark.executor.defaultJavaOptions": java,
        "spark.ui.enabled": "false",
    }
    settings = embedded_settings(Home(path=folder / "home"), project, f"{LOOPBACK}:1", topologies="topologies")
    return Submission(
        application=folder / "job.py",
        arguments=[str(folder)],
        name="recount job",
        settings=settings,
        resources=Resources(executors=1, executor_memory="512m", driver_memory="512m", conf=conf),
    )


def needed(asked: list[str]) -> set[tuple[str, str]]:
    """The verbs of Kubernetes, each with a kind of objects, that the calls come to."""
    found = set()
    for call in asked:
        method, _, path = call.partition(" ")
        place, _, query = path.partition("?")
        kind, *name = place.partition("/namespaces/")[2].split("/")[1:]
        verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}
        verb = verbs[method]
        if not name:
            verb = {"get": "watch" if "watch=true" in query else "list", "delete": "deletecollection"}.get(verb, verb)
        found.add((verb, kind))
    return found


def allowed() -> set[tuple[str, str]]:
    """What the roles of the manifests allow."""
    objects = yaml.safe_load_all((Path(__file__).parents[3] / "kubernetes" / "access.yaml").read_text())
    rules = [rule for one in objects if one["kind"] == "Role" for rule in one["rules"]]
    return {(verb, kind) for rule in rules for verb in rule["verbs"] for kind in rule["resources"]}


def test_a_job_runs_in_pods_and_its_end_is_known(cluster: FakeKubernetes, project: Project, tmp_path: Path) -> None:
    failure = submission(cluster, project, tmp_path).run()
    logs = "\n".join(file.read_text(errors="replace")[-3_000:] for file in cluster.folder.glob("*/log"))
    assert failure is None, f"{failure}\n{logs}"
    assert (tmp_path / "done").read_text() == "1000"
    # the driver's pod and that of its executor
    assert len(list(cluster.folder.glob("recount-job-*-driver"))) == len(list(cluster.folder.glob("job-*-exec-1"))) == 1
    # it was taken away, and its executor's with it
    assert cluster.of("pods") == []
    assert needed(cluster.asked) - allowed() == set()
