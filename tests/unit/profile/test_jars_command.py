"""Jars are fetched whole or not at all, and not twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from recount.profile.jars import fetched, jars
from recount.profile.project import Project
from recount.runtime.errors import Terminal, Transient
from recount.tables.spark_session import session_configuration


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


def test_a_set_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Terminal):
        jars(["flink"], folder=tmp_path)


def test_spark_may_fetch_them_itself() -> None:
    assert "spark.jars" not in session_configuration("packages")
    assert session_configuration("packages")["spark.jars.packages"].startswith("org.apache.spark:spark-sql-kafka")


def test_jars_that_are_missing_are_an_error_that_names_the_call_that_fetches_them(tmp_path: Path) -> None:
    with pytest.raises(Terminal) as missing:
        _ = Project(root=tmp_path).kafka_jars
    assert "run: recount jars kafka " in missing.value.remedy
