"""The connection decides where a job runs; the job's arguments, jars, size and log level are ours."""

from __future__ import annotations

import ast
import inspect
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from recount.airflow import submission as module
from recount.airflow.submission import Submission
from recount.declare.limits import Resources
from recount.runtime.errors import Terminal
from recount.runtime.installation import class_archive
from recount.runtime.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "delta.jar").touch()
    folders = dict.fromkeys(("data", "checkpoints", "reports", "logs", "run", "jars"), str(tmp_path))
    return Settings(profile="embedded", bootstrap_servers="127.0.0.1:1", **folders)


def connect(monkeypatch: pytest.MonkeyPatch, master: str, **extra: str) -> None:
    connection = {"conn_type": "spark", "host": master, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))


def submission(settings: Settings) -> Submission:
    return Submission(
        application=Path("jobs/stream.py"), arguments=["--stream", "orders"], name="orders", settings=settings
    )


def option(words: list[str], name: str) -> str:
    """The value of one of Spark's settings in the words of a command."""
    [found] = [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    return found


def test_the_command_carries_master_jars_and_arguments(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    connect(monkeypatch, "spark://127.0.0.1:7077")
    words = submission(settings).command
    assert words[words.index("--master") + 1] == "spark://127.0.0.1:7077"
    assert words[words.index("--jars") + 1] == f"{settings.jars}/delta.jar"
    assert words[-3:] == ["jobs/stream.py", "--stream", "orders"]


@pytest.mark.parametrize(("mode", "is_cluster"), [("client", False), ("cluster", True)])
def test_the_deploy_mode_is_the_connection_s(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, mode: str, is_cluster: bool
) -> None:
    connect(monkeypatch, "yarn", **{"deploy-mode": mode, "queue": "streams"})
    made = submission(settings)
    assert made.is_cluster is is_cluster
    assert made.command[made.command.index("--queue") + 1] == "streams"


def test_a_cluster_s_driver_is_handed_the_settings(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    connect(monkeypatch, "yarn", **{"deploy-mode": "cluster"})
    assert "spark.yarn.appMasterEnv.RECOUNT_PROFILE=embedded" in submission(settings).command


def test_a_driver_on_kubernetes_is_a_pod_as_declared(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    connect(monkeypatch, "k8s://https://kubernetes.default.svc", **{"deploy-mode": "cluster", "namespace": "streams"})
    volume = "spark.kubernetes.driver.volumes.persistentVolumeClaim.recount"
    declared = {
        "spark.kubernetes.container.image": "registry.bank/recount:1",
        "spark.kubernetes.authenticate.driver.serviceAccountName": "recount-driver",
        f"{volume}.options.claimName": "recount",
        f"{volume}.mount.path": "/srv/recount",
    }
    made = Submission(
        application=Path("/opt/recount/spark_jobs/stream.py"),
        arguments=["--stream", "orders"],
        name="recount stream orders",
        settings=settings,
        resources=Resources(executors=2, executor_memory="4g", driver_memory="3g", conf=declared),
    )
    words = made.command
    assert {name: option(words, name) for name in declared} == declared
    assert option(words, "spark.kubernetes.namespace") == "streams"
    assert option(words, "spark.kubernetes.driver.pod.name").startswith("recount-stream-orders-")
    # it goes on by itself, and is asked for at the API
    assert option(words, "spark.kubernetes.submission.waitAppCompletion") == "false"
    assert option(words, "spark.kubernetes.driverEnv.RECOUNT_PROFILE") == "embedded"
    options = dict(pairwise(words))
    assert options["--deploy-mode"] == "cluster"
    assert (options["--num-executors"], options["--executor-memory"], options["--driver-memory"]) == ("2", "4g", "3g")
    # job and jars are in the image
    assert options["--jars"] == f"local://{settings.jars}/delta.jar"
    assert words[-3:] == ["local:///opt/recount/spark_jobs/stream.py", "--stream", "orders"]


def test_the_namespace_of_pods_may_be_declared_and_must_be_said(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    connect(monkeypatch, "k8s://https://kubernetes.default.svc", **{"deploy-mode": "cluster"})
    with pytest.raises(Terminal) as refused:
        submission(settings)
    assert "namespace" in refused.value.remedy
    size = Resources(conf={"spark.kubernetes.namespace": "of-orders"})
    made = Submission(application=Path("job.py"), arguments=[], name="orders", settings=settings, resources=size)
    assert "spark.kubernetes.namespace=of-orders" in made.command


def test_a_driver_beside_airflow_may_have_executors_on_kubernetes(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    connect(monkeypatch, "k8s://https://kubernetes.default.svc", namespace="streams")
    words = submission(settings).command
    assert words[words.index("--jars") + 1] == f"{settings.jars}/delta.jar"
    assert not [word for word in words if "driver.pod.name" in word]


@pytest.mark.parametrize("is_json", [False, True])
def test_the_jvm_of_a_job_logs_as_the_settings_say(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, is_json: bool
) -> None:
    connect(monkeypatch, "local[1]")
    made = Submission(
        application=Path("jobs/stream.py"),
        arguments=[],
        name="orders",
        settings=replace(settings, log_format="json" if is_json else "text"),
        java_options="-XX:+UseSerialGC",
    )
    [options] = [word for word in made.command if word.startswith("spark.driver.extraJavaOptions=")]
    assert options.partition("=")[2].startswith("-XX:+UseSerialGC")
    assert ("log4j2-json-layout" in options) is is_json


def test_only_a_jvm_of_this_machine_has_its_classes_from_the_archive_beside_the_jars(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    def archives(master: str, **more: str) -> int:
        connect(monkeypatch, master, **more)
        return sum("SharedArchiveFile" in word for word in submission(settings).command)

    assert archives("local[1]") == 0
    class_archive(Path(settings.jars)).touch()
    assert archives("local[1]") == 1
    monkeypatch.setenv("SPARK_HOME", "/opt/another")
    assert archives("local[1]") == 0, "an archive holds for one Spark"
    class_archive(Path(settings.jars)).touch()
    assert archives("local[1]") == 1
    assert archives("k8s://https://kubernetes.default.svc", **{"deploy-mode": "cluster", "namespace": "streams"}) == 0


def test_spark_may_fetch_the_jars_itself(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    connect(monkeypatch, "yarn")
    words = submission(replace(settings, jars="packages")).command
    assert "--jars" not in words
    assert "io.delta:delta-storage:" in words[words.index("--packages") + 1]


def test_missing_jars_are_terminal(settings: Settings) -> None:
    for jar in Path(settings.jars).glob("*.jar"):
        jar.unlink()
    with pytest.raises(Terminal):
        submission(settings)


@pytest.mark.parametrize(("master", "cores"), [("spark://127.0.0.1:7077", "6"), ("yarn", None)])
def test_the_size_of_an_application_reaches_spark_submit(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, master: str, cores: str | None
) -> None:
    connect(monkeypatch, master)
    size = Resources(executors=3, executor_cores=2, executor_memory="4g", conf={"spark.locality.wait": "0"})
    words = Submission(
        application=Path("job.py"), arguments=[], name="orders", settings=settings, resources=size
    ).command
    options = dict(pairwise(words))
    assert (options["--num-executors"], options["--executor-cores"], options["--executor-memory"]) == ("3", "2", "4g")
    assert options["--driver-memory"] == "2g"
    assert options.get("--total-executor-cores") == cores
    assert "spark.locality.wait=0" in words


def test_a_standalone_cluster_has_no_deploy_mode_cluster_for_python(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    connect(monkeypatch, "spark://127.0.0.1:7077", **{"deploy-mode": "cluster"})
    with pytest.raises(Terminal) as refused:
        submission(settings)
    assert "deploy-mode" in refused.value.remedy


def test_a_connection_that_is_missing_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    with pytest.raises(Terminal) as refused:
        Submission(application=Path("job.py"), arguments=[], name="orders", settings=settings, connection="nowhere")
    assert refused.value.given == "nowhere"


def private_members_of_hooks(source: str) -> set[str]:
    """The private members that are asked of a hook, by whatever name it goes."""
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    of_hook = [node for node in found if "hook" in ast.unparse(node.value).lower()]
    return {node.attr for node in of_hook if node.attr.startswith("_") and not node.attr.startswith("__")}


def test_one_private_member_of_the_provider_is_left_and_is_as_it_was() -> None:
    """The contract with the Spark provider: an upgrade that breaks it fails here, not in the night."""
    folder = Path(inspect.getfile(module)).parent
    asked = set().union(*(private_members_of_hooks(file.read_text()) for file in folder.rglob("*.py")))
    assert asked == {"_build_spark_submit_command"}
    parameters = inspect.signature(SparkSubmitHook._build_spark_submit_command).parameters
    assert list(parameters) == ["self", "application"]
    assert "track_driver_via_k8s_api" in inspect.signature(SparkSubmitHook).parameters
