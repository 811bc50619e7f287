"""The connection decides where a job runs and who it is for Kafka; a task ends as its job does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from recount.airflow.audits import ProcessOperator
from recount.airflow.submission import Submission
from recount.declare.limits import Resources
from recount.kafka.connection import Connection
from recount.kafka.security import InvalidSecurity, security_of
from recount.runtime.console import final_error_in
from recount.runtime.errors import Terminal, Transient
from recount.runtime.settings import Settings


def connect(monkeypatch: pytest.MonkeyPatch, master: str, **extra: str) -> None:
    connection = {"conn_type": "spark", "host": master, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))


def submission(settings: Settings, resources: Resources | None = None, **more: Any) -> Submission:
    return Submission(
        application=Path("jobs/stream.py"),
        arguments=["--stream", "orders"],
        name="orders",
        settings=settings,
        **({} if resources is None else {"resources": resources}),
        **more,
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
def test_the_deploy_mode_is_the_connection_s_and_a_cluster_s_driver_is_handed_the_settings(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, mode: str, is_cluster: bool
) -> None:
    connect(monkeypatch, "yarn", **{"deploy-mode": mode, "queue": "streams"})
    made = submission(settings)
    assert made.is_cluster is is_cluster
    assert made.command[made.command.index("--queue") + 1] == "streams"
    assert ("spark.yarn.appMasterEnv.RECOUNT_PROFILE=embedded" in made.command) is is_cluster


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
    assert "spark.kubernetes.namespace=of-orders" in submission(settings, size).command
    # a driver beside Airflow may have executors there
    connect(monkeypatch, "k8s://https://kubernetes.default.svc", namespace="streams")
    words = submission(settings).command
    assert words[words.index("--jars") + 1] == f"{settings.jars}/delta.jar"
    assert not [word for word in words if "driver.pod.name" in word]


def test_spark_may_fetch_the_jars_itself_and_those_that_are_missing_are_terminal(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    connect(monkeypatch, "yarn")
    words = submission(replace(settings, jars="packages")).command
    assert "--jars" not in words
    assert "io.delta:delta-storage:" in words[words.index("--packages") + 1]
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
    words = submission(settings, size).command
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
    with pytest.raises(Terminal) as missing:
        submission(settings, connection="nowhere")
    assert missing.value.given == "nowhere"


PASSWORD = "n0t-in-sight"  # noqa: S105 - of the test


@pytest.fixture
def secured(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    connect(monkeypatch, "local[1]")
    return replace(settings, kafka_security="airflow:kafka_{role}")


def connect_kafka(monkeypatch: pytest.MonkeyPatch, role: str, **extra: object) -> None:
    connection = {"conn_type": "kafka", "login": f"of-{role}", "password": PASSWORD}
    said = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", **extra}
    monkeypatch.setenv(f"AIRFLOW_CONN_KAFKA_{role.upper()}", json.dumps({**connection, "extra": said}))


def job_of(secured: Settings, job: str) -> Submission:
    return Submission(application=Path(job), arguments=[], name="orders", settings=secured)


def test_login_and_password_are_the_user_s_and_the_extra_says_the_rest(
    monkeypatch: pytest.MonkeyPatch, secured: Settings
) -> None:
    connect_kafka(monkeypatch, "admin")
    found = Connection.of(secured)
    assert str(found.security) == "SASL_SSL SCRAM-SHA-512 as user of-admin"
    assert found.security.of_clients()["sasl.password"] == PASSWORD


@pytest.mark.parametrize(("job", "role"), [("stream.py", "stream"), ("backfill.py", "stream"), ("audit.py", "audit")])
def test_a_driver_finds_the_security_of_its_role_in_a_file_that_others_cannot_read(
    job: str, role: str, monkeypatch: pytest.MonkeyPatch, secured: Settings
) -> None:
    connect_kafka(monkeypatch, role)
    made = job_of(secured, job)
    place = Path(made._environment["RECOUNT_KAFKA_SECURITY"])
    assert place.stat().st_mode & 0o777 == 0o600
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert security_of(str(place))["sasl.username"] == f"of-{role}"
    assert PASSWORD not in json.dumps([made.command, made._environment])


def test_a_driver_on_a_cluster_is_not_sent_to_a_file_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, secured: Settings
) -> None:
    connect_kafka(monkeypatch, "stream")
    connect(monkeypatch, "yarn", **{"deploy-mode": "cluster"})
    with pytest.raises(Terminal, match="cannot read an Airflow connection"):
        job_of(secured, "stream.py")
    mounted = job_of(replace(secured, kafka_security="/secrets/kafka-{role}"), "audit.py")
    assert "spark.yarn.appMasterEnv.RECOUNT_KAFKA_SECURITY=/secrets/kafka-audit" in mounted.command


def test_a_connection_that_is_not_there_or_says_no_texts_is_told(
    monkeypatch: pytest.MonkeyPatch, secured: Settings
) -> None:
    with pytest.raises(InvalidSecurity, match="no such connection in Airflow"):
        job_of(secured, "stream.py")
    connect_kafka(monkeypatch, "stream", **{"sasl.password": 5})
    with pytest.raises(InvalidSecurity, match="not a JSON object of texts"):
        job_of(secured, "stream.py")


def test_a_module_that_a_task_runs_has_the_connection_of_an_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secured: Settings
) -> None:
    code = (
        "from os import environ; from recount.runtime.settings import Settings; from recount.kafka.connection import *"
    )
    (tmp_path / "who.py").write_text(f"{code}\nprint(Connection.of(Settings.from_environment(environ)).security)\n")
    connect_kafka(monkeypatch, "audit")
    for name, value in {**secured.to_environment(), "PYTHONPATH": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    operator, lines = ProcessOperator(task_id="panels"), list[str]()
    monkeypatch.setattr(operator.log, "info", lines.append)
    assert operator.run_module("who") == 0, lines
    assert lines == ["SASL_SSL SCRAM-SHA-512 as user of-audit"]


NO_RETRY = "no retry can help"
JOB = """
import sys
from recount.runtime.errors import Terminal, Transient
from recount.runtime.settings import Settings
from recount.runtime.console import run_job
from recount.runtime.log_lines import write_log

def audit() -> None:
    write_log("{log}")
    raise {error}

run_job("audit", audit)
"""
SAID = "recount audit: the declaration has changed; remedy: recount reset orders"
TERMINAL = "Terminal('the declaration has changed', remedy='recount reset orders')"
SPARK_SUBMIT = """#!{python}
# as spark-submit in deploy mode client: it ends with the exit code of its Python
import subprocess, sys
[job] = [word for word in sys.argv if word.endswith("job.py")]
sys.exit(subprocess.call([sys.executable, job]))
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of a job that a ``spark-submit`` of this test runs."""
    binary = tmp_path / "bin" / "spark-submit"
    binary.parent.mkdir()
    binary.write_text(SPARK_SUBMIT.format(python=sys.executable))
    binary.chmod(0o700)
    monkeypatch.setenv("PATH", str(binary.parent), prepend=":")
    connect(monkeypatch, "local[1]")
    return tmp_path / "job.py"


def ended(job: Path, settings: Settings, error: str, log: str = "text") -> str | None:
    job.write_text(JOB.format(error=error, log=log))
    return Submission(application=job, arguments=[], name="recount audit orders", settings=settings).run()


@pytest.mark.parametrize("log", ["text", "json"])
def test_a_final_error_of_a_job_is_raised_in_its_own_line(job: Path, settings: Settings, log: str) -> None:
    with pytest.raises(Terminal) as raised:
        ended(job, settings, TERMINAL, log)
    assert str(raised.value) == SAID


def test_an_error_that_may_pass_is_raised_as_such_and_one_that_nobody_expected_may_pass(
    job: Path, settings: Settings
) -> None:
    with pytest.raises(Transient, match="recount audit: the brokers are away"):
        ended(job, settings, "Transient('the brokers are away')")
    assert "Error code is: 70" in (ended(job, settings, "ZeroDivisionError") or "")


def run(job: Path, source: str) -> subprocess.CompletedProcess[str]:
    job.write_text(source)
    return subprocess.run([sys.executable, job], capture_output=True, text=True, timeout=60, check=False)


def test_a_job_says_a_final_error_in_one_line_and_one_that_nobody_expected_with_its_trace(job: Path) -> None:
    found = run(job, JOB.format(error=TERMINAL, log="text"))
    assert (found.returncode, found.stdout, found.stderr) == (1, "", f"{SAID}\n")
    found = run(job, JOB.format(error="ZeroDivisionError", log="text"))
    assert found.returncode == 70
    assert "Traceback" in found.stderr and "ZeroDivisionError" in found.stderr


def test_the_job_of_a_stream_that_cannot_start_says_in_one_line_that_no_retry_can_help() -> None:
    environment = {name: said for name, said in os.environ.items() if not name.startswith("RECOUNT_")}
    job = [sys.executable, "spark_jobs/stream.py", "--stream", "orders"]
    found = subprocess.run(job, env=environment, capture_output=True, text=True, timeout=300, check=False)
    [said] = found.stderr.splitlines()
    assert (found.returncode, found.stdout) == (1, "")
    assert (final_error_in(said) or "").startswith("invalid settings; given: 'RECOUNT_PROFILE is missing")


def test_a_job_that_decides_by_itself_what_is_final_ends_so(job: Path) -> None:
    """Topics that may be created soon are an error of the kind Terminal, and a stream is launched again for them."""
    decided = JOB.replace('run_job("audit", audit)', 'run_job("stream", audit, lambda error: error.what != "topics")')
    ends = ("topics", 75, "recount stream: topics"), ("sums", 1, f"recount stream: {NO_RETRY}: sums")
    for error, code, said in ends:
        found = run(job, decided.format(error=f"Terminal({error!r})", log="text"))
        assert (found.returncode, found.stderr) == (code, f"{said}\n")
