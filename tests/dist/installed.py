"""What the tests of the wheel have in common: its programs are run as somebody does who has installed it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Producer


def wheel() -> Path:
    """What `make dist` has built."""
    [built] = (Path(__file__).parents[2] / "dist").glob("*.whl")
    return built


def clean_environment(**more: str) -> dict[str, str]:
    """Nothing of the environment in which the tests run but where its programs are."""
    kept = ("PATH", "HOME", "LANG", "JAVA_HOME", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "MAVEN_OPTS", "MAVEN_ARGS")
    settings = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "REQUESTS_"))}
    known = {name: value for name, value in os.environ.items() if name in kept or name.lower() in map(str.lower, kept)}
    paths = [path for path in known["PATH"].split(os.pathsep) if not path.startswith(sys.prefix)]
    return {**known, **settings, "PATH": os.pathsep.join(paths), **more}


def run(
    *command: str | Path, folder: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment or clean_environment(),
        capture_output=True,
        text=True,
        timeout=1_800,
        check=False,
    )


def done(*command: str | Path, folder: Path) -> str:
    ended = run(*command, folder=folder)
    assert ended.returncode == 0, ended.stdout[-3_000:] + ended.stderr[-3_000:]
    return ended.stdout


def produce(servers: str, orders: Sequence[tuple[int, int]]) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "acks": "all"})
    for timestamp_ms, number in orders:
        value = {"order_id": str(number), "region": ("north", "south")[number % 2], "amount": "1.50"}
        producer.produce("orders", key=str(number), value=json.dumps(value), timestamp=timestamp_ms)
    assert producer.flush(60) == 0
