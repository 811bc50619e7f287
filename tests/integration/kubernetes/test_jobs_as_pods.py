"""A job of Spark on a Kubernetes of this machine: driver and executors are pods that the image's entry point starts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fake_kubernetes import FakeKubernetes

from recount.airflow.submission import Submission
from recount.core.resources import Resources
from recount.local.home import Home
from recount.local.ports import LOOPBACK
from recount.local.profile import embedded_settings
from recount.local.project import Project

pytestmark = pytest.mark.timeout(600)

NAMESPACE = "streams"
JOB = """
import os, sys, time
from pathlib import Path

from recount.core.settings import Settings
from recount.sessions import spark_session

told, what = Path(sys.argv[1]), sys.argv[2]
session = spark_session(Settings.from_environment(os.environ), "job")
if what == "fail":
    sys.exit(3)
rows = session.range(1000, numPartitions=2).selectExpr("id", "id % 7 AS rest")
rows.mapInArrow(lambda batches: batches, rows.schema).write.format("delta").save(str(told / "table"))
(told / "done").write_text(str(session.read.format("delta").load(str(told / "table")).count()))
while what == "stay":
    time.sleep(0.2)
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


def submission(cluster: FakeKubernetes, project: Project, folder: Path, what: str) -> Submission:
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
        arguments=[str(folder), what],
        name=f"recount job {what}",
        settings=settings,
        resources=Resources(executors=1, executor_memory="512m", driver_memory="512m", conf=conf),
    )


def test_a_job_runs_in_pods_and_its_end_is_known(cluster: FakeKubernetes, project: Project, tmp_path: Path) -> None:
    failure = submission(cluster, project, tmp_path, "once").run()
    logs = "\n".join(file.read_text(errors="replace")[-3_000:] for file in cluster.folder.glob("*/log"))
    assert failure is None, f"{failure}\n{logs}"
    assert (tmp_path / "done").read_text() == "1000"
    made = [asked for asked in cluster.asked if asked.startswith("POST") and asked.endswith("/pods")]
    assert made, cluster.asked
    # the driver's pod is taken away, and its executors' with it
    assert cluster.of("pods") == []
