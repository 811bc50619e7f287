"""What the embedded profile takes from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from recount.local.home import Home
from recount.local.profile import embedded_settings
from recount.local.project import Project


def test_an_installation_keeps_the_prefix_that_its_user_gave_it(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOUNT_PREFIX", "harbour")
    assert embedded_settings(Home(path=tmp_path), project, "127.0.0.1:1").prefix == "harbour"
