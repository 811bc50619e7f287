"""One folder, one command at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from recount.core.errors import Terminal, Transient
from recount.local.home import Home
from recount.local.ports import free_ports, is_free
from recount.local.project import Project


def test_a_home_is_held_by_one_command_at_a_time(tmp_path: Path) -> None:
    home = Home(path=tmp_path / "home")
    with home.locked(), pytest.raises(Transient), home.locked():
        pass
    with home.locked():
        pass


def test_a_deleted_home_leaves_nothing(tmp_path: Path) -> None:
    home = Home(path=tmp_path / "home")
    home.create()
    home.delete()
    assert not home.path.exists()


def test_only_the_owner_reads_a_home(tmp_path: Path) -> None:
    home = Home(path=tmp_path / "home")
    home.create()
    assert home.path.stat().st_mode & 0o077 == 0


def test_the_environment_moves_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RECOUNT_HOME", raising=False)
    assert Home.of(tmp_path).path == tmp_path / ".recount"
    monkeypatch.setenv("RECOUNT_HOME", str(tmp_path / "elsewhere"))
    assert Home.of(tmp_path).path == tmp_path / "elsewhere"


def test_a_project_is_found_from_any_folder_in_it(project: Project) -> None:
    assert Project.containing(project.root / "include" / "recount" / "core") == project


def test_a_folder_outside_of_a_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Terminal):
        Project.containing(tmp_path)


def test_missing_jars_name_the_command_that_fetches_them(tmp_path: Path) -> None:
    for jars in ("spark_jars", "kafka_jars"):
        with pytest.raises(Terminal) as raised:
            getattr(Project(root=tmp_path), jars)
        assert "make setup" in raised.value.remedy


def test_chosen_ports_are_free_and_different() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(is_free(port) for port in ports)
