"""What the image leaves out: only what there is, and nothing that a part which it keeps asks for by name."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.lean_spark import SPARK, is_unused, make_lean_spark, patterns

from recount.profile.project import Project

JARS = SPARK / "jars"
SERVICES = "META-INF/services/"
LIBRARIES = ("numpy", "pandas", "pyarrow", "scipy")


def classes(jar: Path) -> set[str]:
    with ZipFile(jar) as file:
        return {name.removesuffix(".class").replace("/", ".") for name in file.namelist() if name.endswith(".class")}


def services(jar: Path) -> set[str]:
    """The classes that whoever looks for services finds in ``jar``."""
    with ZipFile(jar) as file:
        named = [name for name in file.namelist() if name.startswith(SERVICES) and not name.endswith("/")]
        lines = [line for name in named for line in file.read(name).decode(errors="replace").splitlines()]
    return {line.partition("#")[0].strip() for line in lines} - {""}


def test_every_line_takes_something_out() -> None:
    assert [pattern for pattern in patterns() if not list(JARS.glob(pattern))] == []


def test_no_jar_that_is_kept_offers_a_class_that_is_taken_out(project: Project) -> None:
    """Whoever looks for services, as Spark does for its data sources, would end at it."""
    kept = [jar for jar in (*JARS.glob("*.jar"), *project.spark_jars.glob("*.jar")) if not is_unused(jar.name)]
    gone = set[str]().union(*(classes(jar) for jar in JARS.glob("*.jar") if is_unused(jar.name)))
    assert gone
    assert {jar.name: found for jar in kept if (found := services(jar) & gone)} == {}


def test_the_spark_of_the_tests_is_that_of_the_image(tmp_path: Path) -> None:
    home = make_lean_spark(tmp_path)
    names = {one.name for one in (home / "jars").iterdir()}
    assert "spark-core_2.13-4.2.0.jar" in names and "connect-repl" not in names
    assert not [name for name in names if name.startswith(("rocksdbjni", "hive-exec", "spark-mllib", "breeze"))]
    assert (home / "bin" / "spark-submit").is_file()


@pytest.fixture
def leaned(tmp_path: Path, project: Project) -> Callable[[], subprocess.CompletedProcess[str]]:
    """Runs docker/lean.sh on packages that are made up, with a jar for each of its patterns."""
    packages, programs = tmp_path / "packages", tmp_path / "programs"
    for pattern in patterns():
        (packages / "pyspark" / "jars" / pattern.replace("*", "x")).mkdir(parents=True)
    (packages / "pyspark" / "jars" / "spark-core_2.13.jar").touch()
    for library in LIBRARIES:
        (packages / library / "core" / "tests" / "data").mkdir(parents=True)
        (packages / library / "testing").mkdir()
    (packages / "pyarrow" / "include").mkdir()
    (packages / "airflow" / "tests").mkdir(parents=True)
    programs.mkdir()
    (programs / "python").write_text(f"#!/bin/sh\necho {packages}\n")
    (programs / "python").chmod(0o755)
    command = ["sh", str(project.root / "docker" / "lean.sh")]
    path = f"{programs}:/usr/bin:/bin"
    return lambda: subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=False)


def test_the_script_takes_out_what_is_listed_and_the_tests_of_libraries(
    leaned: Callable[[], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    ended = leaned()
    assert ended.returncode == 0, ended.stderr
    packages = tmp_path / "packages"
    assert [one.name for one in (packages / "pyspark" / "jars").iterdir()] == ["spark-core_2.13.jar"]
    assert {one.relative_to(packages).as_posix() for one in packages.rglob("test*")} == {
        "airflow/tests",
        *(f"{library}/testing" for library in LIBRARIES),
    }
    assert not (packages / "pyarrow" / "include").exists()


def test_a_line_that_takes_nothing_out_ends_the_build(
    leaned: Callable[[], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    name = next(pattern for pattern in patterns() if "*" not in pattern)
    (tmp_path / "packages" / "pyspark" / "jars" / name).rmdir()
    ended = leaned()
    assert ended.returncode != 0
    assert name in ended.stderr
