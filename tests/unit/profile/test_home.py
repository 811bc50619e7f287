"""One folder, one command at a time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from recount.profile.daemon import free_ports, is_free
from recount.profile.home import Home
from recount.profile.project import Project
from recount.runtime.errors import Terminal, Transient


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


@pytest.fixture
def own_project(tmp_path: Path) -> Project:
    for folder in ("dags", "spark_jobs"):
        (tmp_path / folder).mkdir()
    return Project.containing(tmp_path)


def test_a_project_names_its_modules_and_where_they_are(own_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_project.root / "pyproject.toml").write_text('[tool.recount]\ntopologies = "harbour.topologies"\n')
    monkeypatch.setattr(sys, "path", list(sys.path))
    environ = {"PYTHONPATH": "elsewhere"}
    own_project.join(environ)
    own_project.join(environ)
    assert environ == {"RECOUNT_TOPOLOGIES": "harbour.topologies", "PYTHONPATH": f"{own_project.root}:elsewhere"}
    assert sys.path[0] == str(own_project.root)


def test_modules_that_are_set_go_before_those_of_the_project(
    own_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_project.root / "pyproject.toml").write_text('[tool.recount]\ntopologies = "harbour.topologies"\n')
    monkeypatch.setattr(sys, "path", list(sys.path))
    environ = {"RECOUNT_TOPOLOGIES": "mine"}
    own_project.join(environ)
    assert environ["RECOUNT_TOPOLOGIES"] == "mine"


def test_a_project_that_names_no_text_is_refused(own_project: Project) -> None:
    (own_project.root / "pyproject.toml").write_text("[tool.recount]\ntopologies = 3\n")
    with pytest.raises(Terminal):
        own_project.join({})


def test_a_folder_outside_of_a_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Terminal):
        Project.containing(tmp_path)


def test_missing_jars_name_the_command_that_fetches_them(tmp_path: Path) -> None:
    for jars in ("spark_jars", "kafka_jars"):
        with pytest.raises(Terminal) as raised:
            getattr(Project(root=tmp_path), jars)
        assert "recount jars" in raised.value.remedy


def test_chosen_ports_are_free_and_different() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(is_free(port) for port in ports)
