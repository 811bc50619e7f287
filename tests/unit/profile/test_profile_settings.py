"""What the embedded profile takes from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from recount.declare.registry import declared
from recount.profile.embedded import embedded_settings
from recount.profile.home import Home
from recount.profile.order_flow import TOPOLOGIES
from recount.profile.project import Project


def test_an_installation_keeps_the_prefix_that_its_user_gave_it(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOUNT_PREFIX", "harbour")
    assert embedded_settings(Home(path=tmp_path), project, "127.0.0.1:1").prefix == "harbour"


def test_the_demo_s_streams_are_those_of_its_own_module_whatever_the_environment_names(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOUNT_TOPOLOGIES", "parcels")
    settings = embedded_settings(Home(path=tmp_path), project, "127.0.0.1:1", topologies=TOPOLOGIES)
    assert settings.topologies == TOPOLOGIES
    assert "revenue-by-region" in declared(TOPOLOGIES).topologies
    assert embedded_settings(Home(path=tmp_path), project, "127.0.0.1:1").topologies == "parcels"
