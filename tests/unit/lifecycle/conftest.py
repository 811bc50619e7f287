"""An installation with a key that signs, and no broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from recount.audit.certificate.signing import make_keys
from recount.runtime.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    make_keys(tmp_path / "keys", reports=tmp_path / "reports")
    folders = {name: str(tmp_path / name) for name in ("data", "checkpoints", "reports", "logs", "run", "keys")}
    return Settings(profile="embedded", bootstrap_servers="nowhere:1", jars="nowhere", **folders)
