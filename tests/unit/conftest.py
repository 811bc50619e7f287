"""The settings of an installation whose folders are below ``tmp_path`` and whose brokers are nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from recount.runtime.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "delta.jar").touch()
    folders = {name: str(tmp_path / name) for name in ("data", "checkpoints", "reports", "logs", "run", "jars")}
    return Settings(profile="embedded", bootstrap_servers="127.0.0.1:1", **folders)


@pytest.fixture
def set_settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """These settings in the environment, as a task or a command finds them."""
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    return settings
