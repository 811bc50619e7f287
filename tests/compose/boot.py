"""docker-compose.yml on a real daemon: booted, its services killed under load, backed up, removed and restored.

``make test-compose`` runs it, in this order. It wants a Docker daemon with Compose v2, and takes the machine's memory.
Backup and restore are what docs/compose.md says, word for word.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import yaml
from tests.eventually import eventually

from recount.profile.daemon import LOOPBACK, free_ports
from recount.profile.dag_runs import USERNAME, AirflowApi, DagRuns
from recount.profile.home import Project

pytestmark = pytest.mark.timeout(3_600)


STREAM = "product-revenue"
SENDER = (Path(__file__).parent / "sender.py").read_text()
COUNTER = (Path(__file__).parent / "counter.py").read_text()
AMOUNT = Decimal("1.50")
PLACE = "/backups/monday"
"""The folder of a backup in docs/compose.md."""
RATE = 100
KILLED = (
    *("kafka-1", "kafka-2", "kafka-3"),
    *("spark-worker", "spark-master"),
    *("scheduler", "triggerer", "dag-processor", "api-server", "postgres"),
    *("drivers", "serve"),
)
"""One after the other, each well again before the next."""


@pytest.fixture(scope="module")
def composition(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composition]:
    composition = Composition(
        root=project.root, folder=tmp_path_factory.mktemp("compose"), name=f"test-{uuid4().hex[:8]}"
    )
    try:
        composition.up()
        yield composition
    finally:
        composition.close()


@pytest.fixture(scope="module")
def api(composition: Composition) -> AirflowApi:
    return signed_in(composition)


@pytest.fixture(scope="module")
def sent() -> list[int]:
    """How many records the topic of orders has so far."""
    return [0]


def signed_in(composition: Composition) -> AirflowApi:
    passwords = composition.folder / "passwords.json"
    passwords.write_text(json.dumps({USERNAME: composition.secrets["AIRFLOW_ADMIN_PASSWORD"]}))
    return AirflowApi(f"http://{LOOPBACK}:{composition.ports['api-server']}", passwords)


def send(composition: Composition, count: int, rate: int) -> None:
    sender = composition.start("python", "-c", SENDER, str(count), str(rate), uuid4().hex[:8])
    told, _ = sender.communicate(timeout=1_200)
    assert sender.returncode == 0, told


def came(composition: Composition) -> tuple[int, int]:
    """How many records there are in the topic of orders, and how many orders.

    An order can come twice where a broker dies and its producer, idempotent as it is, sends once more.
    """
    records, orders = json.loads(composition.run("exec", "--no-TTY", "drivers", "python", "-c", COUNTER))
    return records, orders


def counted(composition: Composition) -> Decimal | None:
    """What all windows of the product come to; None while the server does not answer."""
    try:
        rows = composition.asked(f"/streams/{STREAM}/{STREAM}?key=tea")["rows"]
    except httpx.HTTPError:
        return None
    return sum((Decimal(str(row["hourly_revenue"])) for row in rows), Decimal(0))


def adds_up(composition: Composition, records: int, limit_s: float) -> bool:
    """Whether readers come to see what so many records come to, each once."""
    return eventually(lambda: counted(composition), expected=AMOUNT * records, limit_s=limit_s) == AMOUNT * records


def recovers(composition: Composition, states: Mapping[str, str]) -> bool:
    """Whether services come to be in ``states`` again."""
    known = dict(states)
    return eventually(lambda: pick(composition.states(), known), expected=known, limit_s=400) == known


def pick(found: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: found.get(name, "gone") for name in names}


def test_all_services_are_well_and_only_what_cannot_be_pulled_is_missing(composition: Composition) -> None:
    states = composition.states()
    assert set(composition.missing) <= {"statsd-exporter", "prometheus"}
    checked = {name: state for name, state in states.items() if " " in state}
    assert set(checked.values()) == {"running healthy"}
    as_they_come = {"statsd-exporter", "prometheus"} - set(composition.missing)
    assert {name: state for name, state in states.items() if name not in checked} == {
        "backup": "running",
        "drivers": "running",
        "migration": "exited",
        **dict.fromkeys(as_they_come, "running"),
    }


def test_a_container_that_runs_another_command_of_a_service_is_well(composition: Composition) -> None:
    """It does not serve, and is well as long as it lives."""
    other = composition.start("sleep", "90")
    try:
        assert (
            eventually(lambda: composition.alone("serve"), expected="running healthy", limit_s=60) == "running healthy"
        )
    finally:
        other.terminate()
        other.wait(30)


def test_the_page_answers_before_there_are_topics(composition: Composition, api: AirflowApi) -> None:
    api.request("GET", "/api/v2/version")
    page = httpx.get(f"{api.url}/recount/", headers={"Authorization": f"Bearer {api._token}"}, timeout=120)
    assert page.status_code == 200 and STREAM in page.text


def test_topics_are_created_with_three_replicas(composition: Composition, api: AirflowApi) -> None:
    told = composition.run("exec", "--no-TTY", "drivers", "recount", "topics", "--apply", "--of-others")
    assert "applied" in told
    DagRuns(api).parsed("topics", 300)
    DagRuns(api).succeed("topics", 300)
    code = (
        "import json, os; from confluent_kafka.admin import AdminClient\n"
        "found = AdminClient({'bootstrap.servers': os.environ['RECOUNT_BOOTSTRAP_SERVERS']}).list_topics(timeout=30)\n"
        "topics = found.topics.values()\n"
        "print(json.dumps({one.topic: min(len(part.replicas) for part in one.partitions.values()) for one in topics}))"
    )
    replicas = json.loads(composition.run("exec", "--no-TTY", "drivers", "python", "-c", code))
    assert {"orders", STREAM, "recount.status"} <= replicas.keys()
    assert set(replicas.values()) == {3}


def test_a_stream_runs_and_its_audit_is_green(composition: Composition, api: AirflowApi, sent: list[int]) -> None:
    DagRuns(api).unpause(f"stream__{STREAM}")
    send(composition, 2_000, 2_000)
    sent[0] += 2_000
    assert adds_up(composition, sent[0], 600)
    DagRuns(api).succeed(f"audit__{STREAM}", 900, through="now")


def test_the_dump_of_airflow_s_database_can_be_read_back(composition: Composition) -> None:
    def newest() -> str:
        return composition.run(
            "exec", "--no-TTY", "backup", "sh", "-c", "ls /backups/*.dump 2>/dev/null | tail -n 1"
        ).strip()

    assert eventually(lambda: bool(newest()), expected=True, limit_s=120)
    script = """
        createdb --template template0 again
        pg_restore --no-owner --dbname again "$1"
        psql --dbname again --tuples-only --no-align --command 'SELECT username FROM ab_user'
        dropdb again
    """
    told = composition.run("exec", "--no-TTY", "backup", "sh", "-ec", script, "sh", newest())
    assert told.split() == ["admin"]


@pytest.mark.parametrize("service", ["scheduler", "triggerer", "api-server"])
def test_a_restart_of_airflow_leaves_the_drivers_alone(composition: Composition, service: str) -> None:
    drivers = ("exec", "--no-TTY", "drivers", "pgrep", "--full", "stream.py --group")
    before = composition.run(*drivers).split()
    composition.run("restart", service)
    assert recovers(composition, {service: "running healthy"})
    assert before and composition.run(*drivers).split() == before


def test_nothing_is_lost_or_doubled_when_each_service_is_killed_under_load(
    composition: Composition, api: AirflowApi, sent: list[int]
) -> None:
    count, before = 900 * RATE, sent[0]
    well = composition.states()
    sender = composition.start("python", "-c", SENDER, str(count), str(RATE), uuid4().hex[:8])
    for service in KILLED:
        assert sender.poll() is None, f"{service} was to be killed while records arrive"
        composition.kill(service)
        assert recovers(composition, well), service
    told, _ = sender.communicate(timeout=1_800)
    assert sender.returncode == 0, told
    sent[0], orders = came(composition)
    assert orders == before + count
    assert adds_up(composition, sent[0], 900)
    DagRuns(api).succeed(f"audit__{STREAM}", 900, through="now")


def runbook(project: Project, folder: Path) -> list[str]:
    """The blocks of commands of docs/compose.md on backup and restore, with ``folder`` for the folder of the page."""
    page = (project.root / "docs" / "compose.md").read_text()
    [section] = re.findall(r"^## Backup and restore$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    assert all(PLACE in block for block in blocks)
    return [block.replace(PLACE, str(folder)) for block in blocks]


def test_a_backup_of_all_volumes_is_restored_into_an_empty_composition(
    composition: Composition, project: Project, sent: list[int], tmp_path: Path
) -> None:
    backup, restore = runbook(project, tmp_path / "backup")
    composition.typed(backup)
    with pytest.raises(AssertionError, match="holds a backup"):
        composition.typed(backup)
    assert adds_up(composition, sent[0], 300)
    composition.run("down", "--volumes", "--timeout", "20")
    composition.typed(restore)
    api = signed_in(composition)
    assert counted(composition) == AMOUNT * sent[0]
    send(composition, 1_000, 1_000)
    sent[0] += 1_000
    assert adds_up(composition, sent[0], 600)
    DagRuns(api).succeed(f"audit__{STREAM}", 900, through="now")


_INSIDE = {"api-server": 8080, "serve": 8321, "prometheus": 9090}
"""Services whose published port is another one here, with their port inside the container."""

_ONE_OFF = "com.docker.compose.oneoff=True"


@dataclass
class Composition:
    """The composition of the project in ``root``; files of its own go to ``folder``.

    Services whose image can neither be found nor pulled are no part of it, and are ``missing``. Whatever is typed with
    ``environment`` in the project's root is about this composition.
    """

    root: Path
    folder: Path
    name: str
    ports: dict[str, int] = field(init=False)
    secrets: dict[str, str] = field(init=False)
    missing: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.ports = dict(zip(_INSIDE, free_ports(len(_INSIDE)), strict=True))
        secrets = subprocess.run(
            [sys.executable, str(self.root / "docker" / "new_secrets.py")], capture_output=True, text=True, check=True
        ).stdout
        (self.folder / "env").write_text(secrets)
        self.secrets = dict(line.split("=", 1) for line in secrets.splitlines())
        services: dict[str, Any] = yaml.safe_load((self.root / "docker-compose.yml").read_text())["services"]
        built = services["migration"]["image"]
        images = {name: service["image"] for name, service in services.items()}
        self.missing = [name for name, image in images.items() if image != built and not self._has(image)]
        changed = ["services:", "  migration:", "    build:", "      network: host"]
        for name, port in self.ports.items():
            if name in self.missing:
                continue
            changed += [f"  {name}:", f'    ports: !override ["{LOOPBACK}:{port}:{_INSIDE[name]}"]']
        for name in self.missing:
            changed += [f"  {name}:", "    profiles: [absent]"]
        (self.folder / "override.yml").write_text("\n".join([*changed, ""]))

    @property
    def environment(self) -> dict[str, str]:
        """By which ``docker compose``, and a script of the project, means this composition."""
        files = os.pathsep.join([str(self.root / "docker-compose.yml"), str(self.folder / "override.yml")])
        names = {"COMPOSE_PROJECT_NAME": self.name, "COMPOSE_ENV_FILES": str(self.folder / "env")}
        return {**os.environ, "COMPOSE_FILE": files, **names}

    def run(self, *words: str, timeout_s: float = 600) -> str:
        """What ``docker compose`` prints; its errors are errors."""
        return self._ran(["docker", "compose", *words], timeout_s)

    def typed(self, commands: str) -> str:
        """What lines of a shell print, typed in the project's root; the first that fails ends them."""
        return self._ran(["sh", "-ec", commands], 2_400)

    def up(self) -> None:
        """Build, start, and wait until every service says that it is well."""
        self.run("up", "--build", "--detach", "--wait", "--wait-timeout", "600", timeout_s=1_800)

    def states(self) -> dict[str, str]:
        """``running healthy`` and the like, by service; containers of ``start`` are none."""
        return {one["Service"]: _state(one) for one in self._containers() if _ONE_OFF not in one["Labels"]}

    def alone(self, service: str) -> str | None:
        """The state of a container of ``start``; None where there is none."""
        found = [one for one in self._containers() if _ONE_OFF in one["Labels"] and one["Service"] == service]
        return _state(found[0]) if found else None

    def kill(self, service: str) -> None:
        """End the first process of its container as a crash does: nobody asked Docker to stop it."""
        container = self.run("ps", "--quiet", service).strip()
        pid = self._ran(["docker", "inspect", "--format", "{{.State.Pid}}", container], 60)
        os.kill(int(pid), signal.SIGKILL)

    def start(self, *command: str, service: str = "serve") -> subprocess.Popen[str]:
        """A container of its own that runs ``command`` with the settings of ``service``."""
        words = ["docker", "compose", "run", "--rm", "--no-deps", "--no-TTY", service, *command]
        return subprocess.Popen(
            words, cwd=self.root, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def asked(self, path: str) -> Any:
        """The answer of ``recount serve``."""
        token = {"Authorization": f"Bearer {self.secrets['RECOUNT_TOKEN']}"}
        answer = httpx.get(f"http://{LOOPBACK}:{self.ports['serve']}{path}", headers=token, timeout=60)
        answer.raise_for_status()
        return answer.json()

    def close(self) -> None:
        """Remove its containers, networks and volumes; the logs of services, tasks and drivers stay in ``folder``."""
        (self.folder / "services.log").write_text(self.run("logs", "--no-color", "--timestamps"))
        for name, inside in {"tasks": "airflow/logs", "drivers": "logs"}.items():
            words = ["docker", "compose", "cp", f"scheduler:/srv/recount/{inside}", str(self.folder / name)]
            subprocess.run(words, cwd=self.root, env=self.environment, capture_output=True, check=False)
        self.run("down", "--volumes", "--timeout", "20")

    def _containers(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run("ps", "--all", "--format", "json").splitlines()]

    def _has(self, image: str) -> bool:
        wanted = [["docker", "image", "inspect", image], ["docker", "pull", "--quiet", image]]
        return any(subprocess.run(words, capture_output=True, check=False).returncode == 0 for words in wanted)

    def _ran(self, words: Sequence[str], timeout_s: float) -> str:
        done = subprocess.run(
            words, cwd=self.root, env=self.environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout[-3_000:]}{done.stderr[-5_000:]}"
        return done.stdout


def _state(container: Mapping[str, Any]) -> str:
    return f"{container['State']} {container['Health']}".strip()
