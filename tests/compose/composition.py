"""docker-compose.yml on a real daemon, under a project name and ports of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from recount.profile.daemon import LOOPBACK, free_ports

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
