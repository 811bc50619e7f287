"""The wheel, the packages that it needs, and the pytest plugin in it; ``make test-dist`` installs it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from email import message_from_bytes
from functools import cache
from importlib.metadata import packages_distributions, requires, version
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from recount.profile.home import Project
from recount.runtime.installation import (
    LIBRARIES,
    MissingExtra,
    missing_extras_named,
    require_extra,
)


@pytest.fixture(scope="module")
def wheel(project: Project, tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=project.root, capture_output=True, timeout=120, check=True)
    [file] = folder.glob("*.whl")
    return ZipFile(file)


def test_the_wheel_has_one_typed_package_with_jobs_suites_jars_and_templates(project: Project, wheel: ZipFile) -> None:
    names = set(wheel.namelist())
    assert {top for name in names if not (top := name.split("/")[0]).endswith(".dist-info")} == {"recount"}
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


SOURCES = Path(__file__).parents[3] / "include"
MODULES = {
    ".".join(file.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__"): file
    for file in sorted((SOURCES / "recount").rglob("*.py"))
}
# module or package: the extra that it is of; every other module does with what every installation has
PARTS = {
    "recount.airflow": "airflow",
    "recount.pages": "airflow",
    "recount.serve.http_answers": "serve",
    "recount.serve.listening": "serve",
    "recount.profile": "local",
    "recount.recompute.rules.avro_rules": "registry",
    "recount.recompute.rules.protobuf_rules": "registry",
}
# another extra brings them too, by way of its own packages
ALSO_BRINGS = {"airflow": {"fastapi", "starlette", "httpx"}, "local": {"fastapi", "starlette"}}
# a part of what a requirement of ours needs and we import
BROUGHT_ALONG = {"markupsafe": "jinja2", "py4j": "pyspark"}
FOR_TESTS = {"pytest"}


def requirements(extra: str = "") -> list[Requirement]:
    found = [Requirement(line) for line in requires("recount") or []]
    return [one for one in found if (one.marker is None) is (not extra) and (not extra or _is_of(one, extra))]


def _is_of(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is not None and requirement.marker.evaluate({"extra": extra})


def at_import(node: ast.AST) -> Iterator[str]:
    """What is imported when a module is, and not when a function is called or types are checked."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt | ast.ExceptHandler) or isinstance(child, ast.FunctionDef):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        else:
            yield from at_import(child)


@cache
def direct(module: str) -> tuple[frozenset[str], frozenset[str]]:
    """The modules of Recount and the libraries that ``module`` imports itself."""
    own, libraries = set(), set()
    for name in at_import(ast.parse(MODULES[module].read_text())):
        parts = name.split(".")
        if parts[0] != "recount":
            libraries.add(parts[0])
            continue
        while ".".join(parts) not in MODULES:
            parts.pop()
        own |= {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    return frozenset(own), frozenset(libraries - sys.stdlib_module_names)


def needed(module: str) -> set[str]:
    """All libraries that an import of ``module`` imports."""
    seen: set[str] = set()
    to_do = [module]
    while to_do:
        if (one := to_do.pop()) not in seen:
            seen.add(one)
            to_do += direct(one)[0]
    return set().union(*(direct(one)[1] for one in seen))


def part_of(module: str) -> str:
    return next((extra for part, extra in PARTS.items() if f"{module}.".startswith(f"{part}.")), "")


@pytest.fixture(scope="module")
def distributions() -> dict[str, str]:
    return {library: names[0].lower().replace("_", "-") for library, names in packages_distributions().items()}


def test_no_part_needs_the_libraries_of_the_extra_of_another(distributions: dict[str, str]) -> None:
    everywhere = {one.name for one in requirements()}
    found: dict[str, set[str]] = {}
    for module in MODULES:
        part = part_of(module)
        allowed = {*LIBRARIES.get(part, ()), *ALSO_BRINGS.get(part, ()), *(FOR_TESTS if "testing" in module else ())}
        rest = needed(module) - allowed
        strange = {one for one in rest if BROUGHT_ALONG.get(one, distributions.get(one)) not in everywhere}
        if strange:
            found[module] = strange
    assert found == {}


def test_the_libraries_of_an_extra_come_with_it(distributions: dict[str, str]) -> None:
    for extra in ("airflow", "fab", "kubernetes", "audit", "serve", "local"):
        declared = {one.name for one in requirements(extra)}
        indirectly = {
            "airflow": {"asgiref", "sqlalchemy"},
            "fab": {"flask-appbuilder"},
            "kubernetes": {"kubernetes"},
            "serve": {"starlette"},
        }.get(extra, set())
        assert {distributions[one] for one in LIBRARIES[extra]} - indirectly <= declared


@pytest.mark.parametrize("extra", ["", *LIBRARIES])
def test_the_versions_of_our_own_environment_are_within_the_ranges(extra: str) -> None:
    asked = [one for one in requirements(extra) if one.name != "recount"]
    assert {str(one) for one in asked if version(one.name) not in one.specifier} == set()
    assert all(one.specifier for one in asked)
    assert asked


def test_a_missing_library_is_told_with_its_extra_and_one_of_no_extra_as_it_is() -> None:
    with pytest.raises(MissingExtra) as raised, missing_extras_named():
        raise ModuleNotFoundError("no", name="great_expectations.core")
    assert (raised.value.extra, raised.value.remedy) == ("audit", "pip install 'recount[audit]'")
    assert isinstance(raised.value, ImportError)
    with pytest.raises(ModuleNotFoundError) as other, missing_extras_named():
        raise ModuleNotFoundError("no", name="parcels")
    assert type(other.value) is ModuleNotFoundError
    for extra in ("airflow", "fab", "kubernetes", "audit", "serve", "local"):
        require_extra(extra)


def test_a_command_without_its_extra_ends_with_the_name_of_the_extra() -> None:
    code = "import sys; sys.modules['httpx'] = None; from recount.cli import app; app(['up'])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "remedy: pip install 'recount[local]'" in ended.stderr
    assert "Traceback" not in ended.stderr


USERS_TEST = """
from recount.declare.expressions import col
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream

orders = Topic(name="orders", key="order_id", value=RecordSchema.of(amount=LONG))
high = Topic(name="high", key="order_id")
routing = Topology(name="routing", sinks=[stream(orders).filter(col("amount") > 100).to(high)])

def test_only_orders_above_100_pass(topology_driver):
    driver = topology_driver(routing)
    for amount in (100, 101):
        driver.pipe("orders", key="o", value={"amount": amount}, timestamp_ms=0)
    assert [out.value["amount"] for out in driver.read("high")] == [101]
"""


def test_a_users_test_gets_a_driver_without_a_broker_or_a_jvm(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(USERS_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "recount.testing", "-p", "no:cacheprovider", "test_users.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout
    assert "1 passed" in run.stdout
