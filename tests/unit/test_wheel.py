"""What is in the wheel; ``make test-dist`` installs it and does with it what a user does."""

from __future__ import annotations

import subprocess
import sys
from email import message_from_bytes
from zipfile import ZipFile

import pytest

from recount.profile.project import Project
from recount.runtime.installation import coordinates, shipped


@pytest.fixture(scope="module")
def wheel(project: Project, tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=project.root, capture_output=True, timeout=120, check=True)
    [file] = folder.glob("*.whl")
    return ZipFile(file)


def test_the_wheel_has_one_package_and_nothing_of_the_shop(wheel: ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"recount"}


def test_the_wheel_is_typed_and_has_jobs_suites_jars_and_templates(project: Project, wheel: ZipFile) -> None:
    names = set(wheel.namelist())
    assert "recount/py.typed" in names
    for folder, pattern in (("spark_jobs", "*.py"), ("expectations", "*.json"), ("docker", "*")):
        files = list((project.root / folder).glob(pattern))
        assert files and {f"recount/shipped/{folder}/{file.name}" for file in files} <= names
    assert wheel.read("recount/shipped/pom.xml") == (project.root / "pom.xml").read_bytes()
    assert any(name.startswith("recount/project/templates/") for name in names)


def test_the_wheel_says_what_it_needs_and_which_extras_there_are(wheel: ZipFile) -> None:
    [file] = [name for name in wheel.namelist() if name.endswith("METADATA")]
    told = message_from_bytes(wheel.read(file))
    extras = {"airflow", "fab", "kubernetes", "audit", "serve", "registry", "local"}
    assert set(told.get_all("Provides-Extra", [])) == extras
    needed = " ".join(told.get_all("Requires-Dist", []))
    assert "pyspark<4.3,>=4.2.0" in needed
    for tool in ("pytest", "hypothesis", "ruff", "mypy", "hatchling"):
        assert tool not in needed


def test_the_tools_for_tests_are_not_in_the_lock_of_the_product(project: Project) -> None:
    lines = (project.root / "requirements" / "main.lock").read_text().splitlines()
    names = {line.split("==")[0] for line in lines if "==" in line}
    assert "pyspark" in names
    assert not names & {"pytest", "hypothesis", "ruff", "mypy", "playwright", "pre-commit", "hatchling", "matplotlib"}
    image = (project.root / "docker" / "Dockerfile").read_text()
    assert "dev.lock" not in image


def test_the_list_of_jars_is_read_as_maven_reads_it() -> None:
    assert len(coordinates("spark")) == 9
    assert all(one.count(":") == 2 and "$" not in one for one in (*coordinates("spark"), *coordinates("kafka")))
    assert shipped("pom.xml").is_file()
