"""The file by which a Spark cluster and its drivers know each other: made, read, refused without showing a value."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from recount.profile.embedded import Profile
from recount.profile.home import Home, Project
from recount.runtime.errors import Terminal
from recount.runtime.installation import write_secret
from recount.runtime.settings import Settings
from recount.tables import spark_session
from recount.tables.spark_session import CLOSED, SECRET, driver_settings, new_security

WORD = "a-w0rd-that-nobody-sees"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "spark.properties"


def test_a_new_file_authenticates_and_encrypts_with_a_secret_of_its_own_that_python_workers_do_not_get(
    file: Path,
) -> None:
    write_secret(file, new_security())
    found = driver_settings(str(file))
    assert found.items() >= CLOSED.items()
    assert len(found[SECRET]) >= 43
    assert found["spark.executorEnv._SPARK_AUTH_SECRET"] == ""
    assert new_security() != new_security()
    assert driver_settings("") == {}, "without a file nothing is set"


@pytest.mark.parametrize(
    "line", [f"{SECRET}={WORD}", f"{SECRET} = {WORD}", f"  {SECRET}   {WORD}  ", f"{SECRET}: {WORD}"]
)
def test_lines_are_read_as_spark_reads_them(file: Path, line: str) -> None:
    write_secret(file, f"# of the cluster\n\n! another comment\n{line}\nspark.authenticate true\n")
    found = driver_settings(str(file))
    assert (found[SECRET], found["spark.authenticate"]) == (WORD, "true")


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        (f"spark.authenticate=true\n{SECRET}\n", 0o600, [r"line 2 is no setting", "secret is missing"]),
        (f"{SECRET}={WORD}\n{WORD}\n", 0o600, ["line 2 is no setting"]),
        ("spark.authenticate=true\n", 0o600, ["secret is missing"]),
        (f"{SECRET}={WORD}\\\n", 0o600, ["has a backslash"]),
        (f"{SECRET}={WORD}\n", 0o644, ["can be read by everybody"]),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_without_its_words(
    file: Path, text: str, mode: int, told: list[str]
) -> None:
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(Terminal) as refused:
        driver_settings(str(file))
    assert all(part in str(refused.value.given) for part in told)
    assert len(str(refused.value.given).split("; ")) == len(told)
    assert WORD not in str(refused.value)
    assert str(file) in refused.value.what
    file.unlink()
    with pytest.raises(Terminal, match="No such file"):
        driver_settings(str(file))


def test_spark_shows_none_of_its_secrets() -> None:
    hidden = re.compile(spark_session._SECRETS)
    assert hidden.search(SECRET)
    assert hidden.search("spark.executorEnv._SPARK_AUTH_SECRET")
    assert not any(hidden.search(name) for name in CLOSED)


def test_the_composition_is_given_such_a_file(project: Project) -> None:
    script = project.root / "docker" / "new_secrets.py"
    printed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    [line] = [line for line in printed.splitlines() if line.startswith("SPARK_SECURITY=")]
    quoted = re.fullmatch(r'SPARK_SECURITY="([^"$]+)"', line)
    assert quoted
    found = dict(one.split("=", 1) for one in quoted[1].split("\\n") if one)
    secret = found.pop(SECRET)
    assert found == CLOSED
    assert len(secret) >= 43 and secret not in new_security()


@pytest.mark.parametrize("spark", ["local", "cluster"])
def test_drivers_of_the_embedded_profile_find_the_file_of_its_cluster(
    tmp_path: Path, project: Project, spark: str
) -> None:
    home = Home(path=tmp_path)
    profile = Profile(home=home, project=project, spark="cluster" if spark == "cluster" else "local", airflow=False)
    place = Settings.from_environment(profile.environment).spark_security
    assert place == (str(home.spark_security) if spark == "cluster" else "")
