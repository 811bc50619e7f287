"""docker-compose.yml and its image are whole and safe, as far as that can be told without a container engine."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml
from tests.lean_spark import SPARK, is_unused, make_lean_spark, patterns

from recount.airflow.roles import FAB
from recount.profile.home import Project
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


def test_the_image_is_built_once_and_copies_only_what_exists(compose: dict[str, Any], project: Project) -> None:
    assert [name for name, service in compose["services"].items() if "build" in service] == ["migration"]
    lines = (project.root / "docker" / "Dockerfile").read_text().splitlines()
    copied = [
        part for line in lines if line.startswith("COPY ") and "--from" not in line for part in line.split()[1:-1]
    ]
    assert [part for part in copied if not (project.root / part).exists()] == []


def test_every_service_has_a_bound_on_memory_and_logs_starts_again_and_says_whether_it_is_well(
    compose: dict[str, Any],
) -> None:
    for name, service in compose["services"].items():
        assert service["mem_limit"] and service["logging"]["options"]["max-size"], name
        assert service["restart"] == ("on-failure" if name == "migration" else "unless-stopped"), name
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


def test_stream_drivers_have_a_container_of_their_own_and_a_backup_has_every_volume_that_is_no_copy(
    compose: dict[str, Any], project: Project
) -> None:
    services = compose["services"]
    executors = [one.get("environment", {}).get("AIRFLOW__CORE__EXECUTOR", "") for one in services.values()]
    assert {name.rpartition(".")[2] for name in executors if name} == {"EdgeExecutor"}
    assert [name for name, one in services.items() if "worker.sh" in str(one.get("command"))] == ["drivers"]
    [saved] = re.findall(r'^volumes="(.+)"$', (project.root / "docker" / "volumes.sh").read_text(), re.MULTILINE)
    assert set(saved.split()) == compose["volumes"].keys() - {"backups", "prometheus"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "usage: volumes.sh save|load FOLDER"),
        (["load"], "usage: volumes.sh save|load FOLDER"),
        (["restore", "backup"], "usage: volumes.sh save|load FOLDER"),
        (["save", "backup", "more"], "usage: volumes.sh save|load FOLDER"),
        (["load", "mondya"], "mondya: no such folder"),
    ],
)
def test_a_backup_that_is_asked_for_otherwise_or_is_not_there_is_told(
    project: Project, tmp_path: Path, words: list[str], said: str
) -> None:
    command = ["/bin/sh", project.root / "docker" / "volumes.sh", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (2, f"{said}\n", [])


JARS = SPARK / "jars"
SERVICES = "META-INF/services/"
LIBRARIES = ("numpy", "pandas", "pyarrow", "scipy")


def classes(jar: Path) -> set[str]:
    with ZipFile(jar) as file:
        return {name.removesuffix(".class").replace("/", ".") for name in file.namelist() if name.endswith(".class")}


def services(jar: Path) -> set[str]:
    """The classes that whoever looks for services finds in ``jar``."""
    with ZipFile(jar) as file:
        named = [name for name in file.namelist() if name.startswith(SERVICES) and not name.endswith("/")]
        lines = [line for name in named for line in file.read(name).decode(errors="replace").splitlines()]
    return {line.partition("#")[0].strip() for line in lines} - {""}


def test_every_line_takes_something_out_and_no_jar_that_is_kept_offers_a_class_that_is_taken_out(
    project: Project, tmp_path: Path
) -> None:
    """Whoever looks for services, as Spark does for its data sources, would end at it."""
    assert [pattern for pattern in patterns() if not list(JARS.glob(pattern))] == []
    kept = [jar for jar in (*JARS.glob("*.jar"), *project.spark_jars.glob("*.jar")) if not is_unused(jar.name)]
    gone = set[str]().union(*(classes(jar) for jar in JARS.glob("*.jar") if is_unused(jar.name)))
    assert gone
    assert {jar.name: found for jar in kept if (found := services(jar) & gone)} == {}
    # and the Spark of the tests is that of the image
    home = make_lean_spark(tmp_path)
    names = {one.name for one in (home / "jars").iterdir()}
    assert "spark-core_2.13-4.2.0.jar" in names and "connect-repl" not in names
    assert not [name for name in names if name.startswith(("rocksdbjni", "hive-exec", "spark-mllib", "breeze"))]
    assert (home / "bin" / "spark-submit").is_file()


@pytest.fixture
def leaned(tmp_path: Path, project: Project) -> Callable[[], subprocess.CompletedProcess[str]]:
    """Runs docker/lean.sh on packages that are made up, with a jar for each of its patterns."""
    packages, programs = tmp_path / "packages", tmp_path / "programs"
    for pattern in patterns():
        (packages / "pyspark" / "jars" / pattern.replace("*", "x")).mkdir(parents=True)
    (packages / "pyspark" / "jars" / "spark-core_2.13.jar").touch()
    for library in LIBRARIES:
        (packages / library / "core" / "tests" / "data").mkdir(parents=True)
        (packages / library / "testing").mkdir()
    (packages / "pyarrow" / "include").mkdir()
    (packages / "airflow" / "tests").mkdir(parents=True)
    programs.mkdir()
    (programs / "python").write_text(f"#!/bin/sh\necho {packages}\n")
    (programs / "python").chmod(0o755)
    command = ["sh", str(project.root / "docker" / "lean.sh")]
    path = f"{programs}:/usr/bin:/bin"
    return lambda: subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=False)


def test_the_script_takes_out_what_is_listed_and_the_tests_of_libraries_and_ends_where_a_line_takes_nothing(
    leaned: Callable[[], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    ended = leaned()
    assert ended.returncode == 0, ended.stderr
    packages = tmp_path / "packages"
    assert [one.name for one in (packages / "pyspark" / "jars").iterdir()] == ["spark-core_2.13.jar"]
    assert {one.relative_to(packages).as_posix() for one in packages.rglob("test*")} == {
        "airflow/tests",
        *(f"{library}/testing" for library in LIBRARIES),
    }
    assert not (packages / "pyarrow" / "include").exists()
    again = leaned()
    assert again.returncode != 0 and patterns()[0] in again.stderr, "there is nothing of it left to take out"
