"""One folder, one command at a time; a project, its modules and its jars, which are fetched whole or not at all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from recount.declare.registry import declared
from recount.profile.demo_steps import TOPOLOGIES
from recount.profile.embedded import embedded_settings
from recount.profile.home import Home, Project
from recount.profile.jars import fetched, jars
from recount.runtime.errors import Terminal, Transient
from recount.tables.spark_session import session_configuration


def test_a_home_is_held_by_one_command_at_a_time(tmp_path: Path) -> None:
    home = Home(path=tmp_path / "home")
    with home.locked(), pytest.raises(Transient), home.locked():
        pass
    with home.locked():
        pass


def test_only_the_owner_reads_a_home_and_a_deleted_one_leaves_nothing(tmp_path: Path) -> None:
    home = Home(path=tmp_path / "home")
    home.create()
    assert home.path.stat().st_mode & 0o077 == 0
    home.delete()
    assert not home.path.exists()


def test_the_environment_moves_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RECOUNT_HOME", raising=False)
    assert Home.of(tmp_path).path == tmp_path / ".recount"
    monkeypatch.setenv("RECOUNT_HOME", str(tmp_path / "elsewhere"))
    assert Home.of(tmp_path).path == tmp_path / "elsewhere"


def test_a_project_is_found_from_any_folder_in_it_and_none_elsewhere(project: Project, tmp_path: Path) -> None:
    assert Project.containing(project.root / "include" / "recount" / "core") == project
    with pytest.raises(Terminal):
        Project.containing(tmp_path)


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
    environ = {"RECOUNT_TOPOLOGIES": "mine"}
    own_project.join(environ)
    assert environ["RECOUNT_TOPOLOGIES"] == "mine", "what is set goes before"
    (own_project.root / "pyproject.toml").write_text("[tool.recount]\ntopologies = 3\n")
    with pytest.raises(Terminal):
        own_project.join({})


def test_an_installation_keeps_its_prefix_and_the_demo_its_own_streams_whatever_the_environment_names(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOUNT_PREFIX", "harbour")
    monkeypatch.setenv("RECOUNT_TOPOLOGIES", "parcels")
    own = embedded_settings(Home(path=tmp_path), project, "127.0.0.1:1")
    assert (own.prefix, own.topologies) == ("harbour", "parcels")
    demo = embedded_settings(Home(path=tmp_path), project, "127.0.0.1:1", topologies=TOPOLOGIES)
    assert demo.topologies == TOPOLOGIES
    assert "revenue-by-region" in declared(TOPOLOGIES).topologies


def maven(folder: Path, script: str) -> None:
    """A program ``mvn``: where no repository is reached, ours is as good as the real one."""
    program = folder / "mvn"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    return folder


FETCHES = """
for word in "$@"; do case "$word" in -DoutputDirectory=*) into="${word#*=}";; esac; done
mkdir -p "$into"; : > "$into/delta.jar"; echo "$@" >> "$0.calls"
"""


def test_what_is_there_is_not_fetched_again(programs: Path, tmp_path: Path) -> None:
    maven(programs, FETCHES)
    for _ in range(2):
        assert fetched("spark", tmp_path / "jars" / "spark") == tmp_path / "jars" / "spark"
    [call] = (programs / "mvn.calls").read_text().splitlines()
    assert "--strict-checksums" in call and "--activate-profiles spark" in call
    assert [file.name for file in (tmp_path / "jars" / "spark").glob("*.jar")] == ["delta.jar"]


def test_those_of_another_list_are_replaced(programs: Path, tmp_path: Path) -> None:
    maven(programs, FETCHES)
    folder = tmp_path / "jars" / "spark"
    folder.mkdir(parents=True)
    (folder / "old.jar").touch()
    (folder / ".complete").write_text("another list")
    fetched("spark", folder)
    assert [file.name for file in folder.glob("*.jar")] == ["delta.jar"]


def test_a_maven_that_fails_leaves_what_was_there(programs: Path, tmp_path: Path) -> None:
    maven(programs, "echo no repository; exit 1")
    folder = tmp_path / "jars" / "spark"
    folder.mkdir(parents=True)
    (folder / "old.jar").touch()
    with pytest.raises(Transient) as failed:
        fetched("spark", folder)
    assert "no repository" in str(failed.value.given)
    assert [place.name for place in folder.parent.iterdir()] == ["spark"]
    assert (folder / "old.jar").exists()


def test_without_maven_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Terminal) as refused:
        fetched("spark", tmp_path / "spark")
    assert "maven" in refused.value.remedy


def test_a_set_that_there_is_not_is_refused_and_spark_may_fetch_its_own(tmp_path: Path) -> None:
    with pytest.raises(Terminal):
        jars(["flink"], folder=tmp_path)
    assert "spark.jars" not in session_configuration("packages")
    assert session_configuration("packages")["spark.jars.packages"].startswith("org.apache.spark:spark-sql-kafka")


@pytest.mark.parametrize("jars", ["spark", "kafka"])
def test_jars_that_are_missing_are_an_error_that_names_the_call_that_fetches_them(tmp_path: Path, jars: str) -> None:
    with pytest.raises(Terminal) as missing:
        getattr(Project(root=tmp_path), f"{jars}_jars")
    assert f"run: recount jars {jars} " in missing.value.remedy
