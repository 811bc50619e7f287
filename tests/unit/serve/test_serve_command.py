"""``recount serve`` as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.eventually import eventually

from recount.profile.daemon import LOOPBACK, free_ports
from recount.runtime.settings import Settings

TOKEN = "a-token-of-the-tests"  # noqa: S105
CODE = "import sys; from recount.cli import app; app(['serve', *sys.argv[1:]])"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    places = dict.fromkeys(("data", "checkpoints", "reports", "logs", "run", "jars"), str(tmp_path))
    settings = Settings(profile="embedded", bootstrap_servers=f"{LOOPBACK}:1", **places)
    return {**os.environ, **settings.to_environment()}


def test_it_answers_those_who_have_the_token_until_it_is_ended(tmp_path: Path, environment: dict[str, str]) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    [port] = free_ports(1)
    arguments = ["--token-file", str(file), "--port", str(port), "--route", "stats=product-revenue"]
    address = f"http://{LOOPBACK}:{port}"

    def asked(path: str, **headers: str) -> httpx.Response | None:
        try:
            return httpx.get(address + path, headers=headers, timeout=60)
        except httpx.ConnectError:
            return None

    with subprocess.Popen([sys.executable, "-c", CODE, *arguments], env=environment) as server:
        try:
            assert eventually(lambda: asked("/streams") is not None, expected=True, limit_s=120)
            assert asked("/streams").status_code == 401
            assert asked("/stats/tea/", Authorization=f"Bearer {TOKEN}").json()["state"] == "not ready"
            told = asked("/metrics", Authorization=f"Bearer {TOKEN}").text
            assert 'recount_source_up{source="kafka"} 0.0' in told
            server.send_signal(signal.SIGTERM)
            # as a shell tells that a signal ended it, once all answers had been given
            assert server.wait(60) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
        finally:
            server.kill()


def test_it_does_not_start_without_a_token(environment: dict[str, str]) -> None:
    environment.pop("RECOUNT_TOKEN", None)
    ended = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert "no token: who may ask?" in ended.stderr and "Traceback" not in ended.stderr
