"""docker-compose.yml is whole and safe, as far as that can be told without a container engine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from recount.airflow.roles import FAB
from recount.profile.project import Project
from recount.runtime.settings import Settings

WITHOUT_DEFAULT = re.compile(r"\$\{(\w+):\?[^}]+\}")
ROOT = Path(__file__).parents[2]
SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|_KEY$|CLUSTER_ID")


@pytest.fixture
def compose(project: Project) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((project.root / "docker-compose.yml").read_text())
    return content


def faults(compose: dict[str, Any]) -> list[str]:
    """What would stop the composition, or open it to strangers."""
    services, volumes = compose["services"], compose["volumes"]
    found = [f"{one['file']} is missing" for one in compose["configs"].values() if not (ROOT / one["file"]).exists()]
    for name, service in services.items():
        found += [f"{name} depends on {other}" for other in service.get("depends_on", ()) if other not in services]
        mounts = (mount.split(":")[0] for mount in service.get("volumes", ()))
        secrets = (one if isinstance(one, str) else one["source"] for one in service.get("secrets", ()))
        used = [*(one["source"] for one in service.get("configs", ())), *secrets]
        found += [f"{name} uses {one}" for one in used if one not in compose["configs"] | compose["secrets"]]
        found += [f"{name} mounts {volume}" for volume in mounts if volume not in volumes]
        found += [f"{name} publishes {port}" for port in service.get("ports", ()) if not port.startswith("127.0.0.1:")]
        found += [
            f"{name} has a default {key}"
            for key, value in service.get("environment", {}).items()
            if SECRET.search(key) and not WITHOUT_DEFAULT.fullmatch(str(value))
        ]
    return found


def test_the_composition_is_whole_and_closed(compose: dict[str, Any]) -> None:
    assert faults(compose) == []


def test_three_brokers_replicate_everything(compose: dict[str, Any]) -> None:
    brokers = [service for name, service in compose["services"].items() if name.startswith("kafka-")]
    assert len(brokers) == 3
    for broker in brokers:
        settings = broker["environment"]
        assert {value for key, value in settings.items() if key.endswith("REPLICATION_FACTOR")} == {3}
        assert {value for key, value in settings.items() if key.endswith(("MIN_ISR", "MIN_INSYNC_REPLICAS"))} == {2}


@pytest.mark.parametrize("service", ["scheduler", "triggerer", "dag-processor", "api-server", "spark-worker", "serve"])
def test_the_settings_of_a_service_are_complete(compose: dict[str, Any], service: str) -> None:
    settings = Settings.from_environment(compose["services"][service]["environment"])
    assert settings.profile == "production"


def test_every_secret_it_asks_for_is_generated(compose: dict[str, Any], project: Project) -> None:
    asked = set(WITHOUT_DEFAULT.findall((project.root / "docker-compose.yml").read_text()))
    asked |= {secret["environment"] for secret in compose["secrets"].values()}
    script = project.root / "docker" / "new_secrets.py"
    printed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    assert {line.partition("=")[0] for line in printed.splitlines()} == asked


def test_users_of_airflow_have_roles_and_no_command_line_has_a_password(compose: dict[str, Any]) -> None:
    services = compose["services"]
    airflow = ("api-server", "scheduler", "dag-processor", "triggerer", "migration")
    assert {services[name]["environment"]["AIRFLOW__CORE__AUTH_MANAGER"] for name in airflow} == {FAB}
    *_, script = services["migration"]["command"]
    assert "recount roles --apply" in script
    assert "airflow users create" in script and "--password" not in script
    assert "AIRFLOW_ADMIN_PASSWORD" in services["migration"]["environment"]
    assert "AIRFLOW_ADMIN_PASSWORD" not in services["api-server"]["environment"]


def test_spark_and_its_drivers_alone_have_the_secret_by_which_they_know_each_other(compose: dict[str, Any]) -> None:
    services, place = compose["services"], "/run/secrets/spark-security"
    having = {name: one["secrets"] for name, one in services.items() if "spark-security" in str(one.get("secrets"))}
    assert having.keys() == {"spark-master", "spark-worker", "drivers"}
    # of root and its group, to which their user belongs
    for secrets in having.values():
        assert secrets == [{"source": "spark-security", "mode": 0o440}]
    assert all(services[name]["group_add"] == ["0"] for name in having)
    for name in ("spark-master", "spark-worker"):
        assert f" --properties-file {place} " in services[name]["command"]
    assert Settings.from_environment(services["drivers"]["environment"]).spark_security == place
    assert "SPARK_SECURITY" not in str([one.get("environment") for one in services.values()]).replace(
        "RECOUNT_SPARK_SECURITY", ""
    )


def test_prometheus_scrapes_services_of_the_composition_at_their_ports(compose: dict[str, Any]) -> None:
    scraped = yaml.safe_load((ROOT / "docker" / "prometheus.yml").read_text())["scrape_configs"]
    jobs = {job["job_name"]: [target for one in job["static_configs"] for target in one["targets"]] for job in scraped}
    assert jobs == {"recount": ["serve:8321"], "airflow": ["statsd-exporter:9102"]}
    assert {target.partition(":")[0] for targets in jobs.values() for target in targets} <= compose["services"].keys()
    [secret] = compose["services"]["prometheus"]["secrets"]
    assert scraped[0]["authorization"] == {"credentials_file": f"/run/secrets/{secret}"}


def test_the_image_copies_only_what_exists(project: Project) -> None:
    lines = (project.root / "docker" / "Dockerfile").read_text().splitlines()
    copied = [
        part for line in lines if line.startswith("COPY ") and "--from" not in line for part in line.split()[1:-1]
    ]
    assert [part for part in copied if not (project.root / part).exists()] == []


def test_the_image_is_built_once(compose: dict[str, Any]) -> None:
    assert [name for name, service in compose["services"].items() if "build" in service] == ["migration"]


def test_every_service_has_a_bound_on_memory_and_logs_and_starts_again(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["mem_limit"] and service["logging"]["options"]["max-size"], name
        assert service["restart"] == ("on-failure" if name == "migration" else "unless-stopped"), name


def test_every_service_says_whether_it_is_well(compose: dict[str, Any]) -> None:
    silent = {name for name, service in compose["services"].items() if "healthcheck" not in service}
    # one that ends, one that waits for a day, two that come as they are, and Airflow shows the state of its workers
    assert silent == {"migration", "backup", "statsd-exporter", "prometheus", "drivers"}


@pytest.mark.parametrize("service", ["spark-master", "spark-worker", "serve"])
def test_a_service_that_answers_is_asked_only_where_its_own_command_runs(compose: dict[str, Any], service: str) -> None:
    _, python, script, _, command = compose["services"][service]["healthcheck"]["test"]
    assert (python, script) == ("python", "/etc/recount/health.py")
    assert command in compose["services"][service]["command"]


def test_a_container_with_another_command_is_well_and_one_with_its_own_that_does_not_answer_is_not() -> None:
    """``docker compose run serve python …``: nothing listens there."""
    first = Path("/proc/1/cmdline").read_text().partition("\0")[0]

    def exit_code(command: str) -> int:
        words = [sys.executable, str(ROOT / "docker" / "health.py"), "http://127.0.0.1:1/streams", command]
        return subprocess.run(words, capture_output=True, check=False).returncode

    assert exit_code("a command that nobody has started") == 0
    assert exit_code(first) != 0


def test_stream_drivers_have_a_container_of_their_own(compose: dict[str, Any]) -> None:
    services = compose["services"]
    executors = {
        service["environment"]["AIRFLOW__CORE__EXECUTOR"].rpartition(".")[2]
        for service in services.values()
        if "AIRFLOW__CORE__EXECUTOR" in service.get("environment", {})
    }
    assert executors == {"EdgeExecutor"}
    assert [name for name, one in services.items() if "worker.sh" in str(one.get("command"))] == ["drivers"]


def test_a_backup_has_every_volume_that_is_no_copy(compose: dict[str, Any], project: Project) -> None:
    [saved] = re.findall(r'^volumes="(.+)"$', (project.root / "docker" / "volumes.sh").read_text(), re.MULTILINE)
    assert set(saved.split()) == compose["volumes"].keys() - {"backups", "prometheus"}


@pytest.mark.parametrize("words", [[], ["save"], ["load"], ["restore", "backup"], ["save", "backup", "more"]])
def test_a_backup_that_is_asked_for_otherwise_is_told_how(project: Project, tmp_path: Path, words: list[str]) -> None:
    assert saved_or_loaded(project, tmp_path, words) == (2, "usage: volumes.sh save|load FOLDER\n")


def test_a_backup_that_is_not_there_is_not_made_by_loading_it(project: Project, tmp_path: Path) -> None:
    assert saved_or_loaded(project, tmp_path, ["load", "mondya"]) == (2, "mondya: no such folder\n")


def saved_or_loaded(project: Project, folder: Path, words: list[str]) -> tuple[int, str]:
    """The exit code and what the script says; fails where it leaves something behind."""
    command = ["/bin/sh", project.root / "docker" / "volumes.sh", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert list(folder.iterdir()) == []
    return done.returncode, done.stderr
