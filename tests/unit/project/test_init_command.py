"""``recount init`` writes a project that stands on its own feet; ``make test-dist`` runs all of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from tests.unit.test_compose import faults

from recount.profile.home import Project
from recount.project import init_command
from recount.project.init_command import adapted, init, wheel_name
from recount.runtime.errors import InvalidDeclaration, Terminal
from recount.runtime.installation import shipped
from recount.runtime.settings import Settings


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("made")
    init("my-project", parent=folder)
    return Project.containing(folder / "my-project" / "tests")


def test_a_project_has_the_mandated_shape_and_no_word_of_a_template_is_left_open(made: Project) -> None:
    folders = {"dags", "my_project", "spark_jobs", "expectations", "tests", "docker", "kubernetes", "wheels"}
    files = {"docker-compose.yml", "Makefile", "requirements.txt", "requirements-dev.txt", "pyproject.toml"}
    found = {place.name for place in made.root.iterdir() if not place.name.startswith(".")}
    assert found == folders | files | {"README.md"}
    assert made.expectations == made.root / "expectations"
    assert 'recount_dags(globals(), "my_project.topologies")' in (made.dags / "recount.py").read_text()
    # with the scripts of its backup, too
    for here, folder in ((made.spark_jobs, "spark_jobs"), (made.root / "docker", "docker")):
        assert {one.name for one in here.iterdir()} == {one.name for one in shipped(folder).iterdir() if one.is_file()}
    for file in made.root.rglob("*"):
        if file.is_file() and file.suffix != ".yml":
            assert "{{ name" not in file.read_text() and "{{ package" not in file.read_text(), file


def test_the_tests_of_its_stream_pass(made: Project) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_orders.py"]
    run = subprocess.run(command, cwd=made.root, capture_output=True, text=True, timeout=120, check=False)
    assert "2 passed" in run.stdout, run.stdout


def test_its_composition_is_whole_and_closed(made: Project) -> None:
    content = yaml.safe_load((made.root / "docker-compose.yml").read_text())
    assert faults(content) == []
    settings = Settings.from_environment(content["services"]["scheduler"]["environment"])
    assert settings.topologies == "my_project.topologies"
    assert content["name"] == content["services"]["scheduler"]["image"] == "my-project"
    copied = (made.root / content["services"]["migration"]["build"]["dockerfile"]).read_text().splitlines()
    own = [
        place for line in copied if line.startswith("COPY ") and "--from" not in line for place in line.split()[1:-1]
    ]
    assert own and all((made.root / place).exists() for place in own)
    let_in = {line[1:] for line in (made.root / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {place.split("/")[0] for place in own} == let_in

    # and its manifests are of its own image and topologies
    lines = (made.root / "kubernetes" / "settings.env").read_text().splitlines()
    assert Settings.from_environment(dict(line.split("=", 1) for line in lines)).topologies == "my_project.topologies"
    for name in ("kustomization.yaml", "spark-defaults.conf"):
        assert "registry.example/my-project" in (made.root / "kubernetes" / name).read_text()


@pytest.mark.parametrize(
    "name", ["My-Project", "2nd", "my_project", "", "a/b", "recount", "spark-jobs", "class", "json", "polars"]
)
def test_a_name_that_can_be_no_package_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidDeclaration):
        init(name, parent=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_stays_as_it_is_and_a_file_that_is_not_known_is_refused(tmp_path: Path) -> None:
    (tmp_path / "my-project").mkdir()
    with pytest.raises(Terminal):
        init("my-project", parent=tmp_path)
    assert not list((tmp_path / "my-project").iterdir())
    with pytest.raises(Terminal):
        adapted("services: {}\n", [("name: recount", "name: my-project")])


def installed_from(monkeypatch: pytest.MonkeyPatch, url: str | None) -> None:
    """What pip notes of where Recount came from."""
    told = None if url is None else json.dumps({"url": url})
    monkeypatch.setattr(init_command, "distribution", lambda _: SimpleNamespace(read_text=lambda _: told))


@pytest.mark.parametrize("of_a_checkout", [False, True])
def test_the_wheel_that_recount_was_installed_from_lies_where_the_requirements_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], of_a_checkout: bool
) -> None:
    built = tmp_path / "a checkout" / "dist" / wheel_name()
    built.parent.mkdir(parents=True)
    built.write_bytes(b"a wheel")
    installed_from(monkeypatch, (built.parents[1] if of_a_checkout else built).as_uri())
    init("my-project", parent=tmp_path)
    [named] = [
        line for line in (tmp_path / "my-project/requirements.txt").read_text().splitlines() if "./wheels/" in line
    ]
    assert (tmp_path / "my-project" / named.partition("[")[0]).read_bytes() == b"a wheel"
    assert capsys.readouterr().out.endswith(f"next: cd {tmp_path}/my-project && make test\n")


@pytest.mark.parametrize("url", [None, "https://index.example/recount.whl", "file:///gone/recount-0-py3-none-any.whl"])
def test_where_there_is_no_wheel_the_first_command_says_where_it_has_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str | None
) -> None:
    installed_from(monkeypatch, url)
    init("my-project", parent=tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(f"  cp {wheel_name()} {tmp_path}/my-project/wheels/")
    assert lines[2] == f"next: cd {tmp_path}/my-project && make test"
