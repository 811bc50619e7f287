"""Kafka's security in an Airflow connection: read by Airflow's processes, handed to drivers in a file of their user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from recount.airflow.audits import ProcessOperator
from recount.airflow.submission import Submission
from recount.kafka.connection import Connection
from recount.kafka.security import InvalidSecurity, security_of
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings

PASSWORD = "n0t-in-sight"  # noqa: S105 - of the test


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    (tmp_path / "delta.jar").touch()
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    folders = dict.fromkeys(("data", "checkpoints", "reports", "logs", "run", "jars"), str(tmp_path))
    place = "airflow:kafka_{role}"
    return Settings(profile="embedded", bootstrap_servers="127.0.0.1:1", kafka_security=place, **folders)


def connect(monkeypatch: pytest.MonkeyPatch, role: str, **extra: object) -> None:
    connection = {"conn_type": "kafka", "login": f"of-{role}", "password": PASSWORD}
    said = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", **extra}
    monkeypatch.setenv(f"AIRFLOW_CONN_KAFKA_{role.upper()}", json.dumps({**connection, "extra": said}))


def submission(settings: Settings, job: str) -> Submission:
    return Submission(application=Path(job), arguments=[], name="orders", settings=settings)


def test_login_and_password_are_the_user_s_and_the_extra_says_the_rest(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    connect(monkeypatch, "admin")
    found = Connection.of(settings)
    assert str(found.security) == "SASL_SSL SCRAM-SHA-512 as user of-admin"
    assert found.security.of_clients()["sasl.password"] == PASSWORD


def test_a_connection_may_be_in_a_secrets_backend(tmp_path: Path) -> None:
    extra = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    connection = {"conn_type": "kafka", "login": "of-bank", "password": PASSWORD, "extra": extra}
    (tmp_path / "connections.json").write_text(json.dumps({"kafka_bank": connection}))
    backend = {
        "AIRFLOW__SECRETS__BACKEND": "airflow.secrets.local_filesystem.LocalFilesystemBackend",
        "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"connections_file_path": str(tmp_path / "connections.json")}),
    }
    code = "import json; from recount.airflow.submission import keys_of; print(json.dumps(keys_of('kafka_bank')))"
    # Airflow makes its backends when it is imported
    ended = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **backend}, capture_output=True, text=True, check=True
    )
    assert json.loads(ended.stdout.splitlines()[-1]) == {
        "sasl.username": "of-bank",
        "sasl.password": PASSWORD,
        **extra,
    }


@pytest.mark.parametrize(("job", "role"), [("stream.py", "stream"), ("backfill.py", "stream"), ("audit.py", "audit")])
def test_a_driver_finds_the_security_of_its_role_in_a_file_that_others_cannot_read(
    job: str, role: str, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    connect(monkeypatch, role)
    made = submission(settings, job)
    place = Path(made._environment["RECOUNT_KAFKA_SECURITY"])
    assert place.stat().st_mode & 0o777 == 0o600
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert security_of(str(place))["sasl.username"] == f"of-{role}"
    assert PASSWORD not in json.dumps([made.command, made._environment])


def test_a_file_is_named_to_the_driver_as_that_of_its_role(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    made = submission(replace(settings, kafka_security="/etc/recount/kafka-{role}.json"), "audit.py")
    assert made._environment["RECOUNT_KAFKA_SECURITY"] == "/etc/recount/kafka-audit.json"


def test_a_driver_on_a_cluster_is_not_sent_to_a_file_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    connect(monkeypatch, "stream")
    there = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(there))
    with pytest.raises(Terminal, match="cannot read an Airflow connection"):
        submission(settings, "stream.py")
    mounted = submission(replace(settings, kafka_security="/secrets/kafka"), "stream.py")
    assert "spark.yarn.appMasterEnv.RECOUNT_KAFKA_SECURITY=/secrets/kafka" in mounted.command


def test_a_connection_that_is_not_there_or_says_no_texts_is_told(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    with pytest.raises(InvalidSecurity, match="no such connection in Airflow"):
        submission(settings, "stream.py")
    connect(monkeypatch, "stream", **{"sasl.password": 5})
    with pytest.raises(InvalidSecurity, match="not a JSON object of texts"):
        submission(settings, "stream.py")


def test_a_module_that_a_task_runs_has_the_connection_of_an_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    code = (
        "from os import environ; from recount.runtime.settings import Settings; from recount.kafka.connection import *"
    )
    (tmp_path / "who.py").write_text(f"{code}\nprint(Connection.of(Settings.from_environment(environ)).security)\n")
    connect(monkeypatch, "audit")
    for name, value in {**settings.to_environment(), "PYTHONPATH": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    operator, lines = ProcessOperator(task_id="panels"), list[str]()
    monkeypatch.setattr(operator.log, "info", lines.append)
    assert operator.run_module("who") == 0, lines
    assert lines == ["SASL_SSL SCRAM-SHA-512 as user of-audit"]
