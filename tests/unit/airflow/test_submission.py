"""The connection decides where a job runs; the job's arguments, jars and log level are ours."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from recount.airflow.submission import Submission
from recount.core.errors import Terminal
from recount.core.settings import Settings


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


def test_missing_jars_are_terminal(settings: Settings) -> None:
    for jar in Path(settings.jars).glob("*.jar"):
        jar.unlink()
    with pytest.raises(Terminal):
        submission(settings)
