"""Files go when they are older than declared, folders of a run whole, and a dry run touches nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from recount.lifecycle.old_files import LOG_BYTES, LOG_BYTES_LEFT, remove_old
from recount.runtime.errors import InvalidDeclaration
from recount.runtime.settings import InvalidSettings, Keeping, Settings

DAY_MS = 86_400_000
NOW_MS = 1_000 * DAY_MS
GX = "reports/gx/uncommitted"
FILES = {
    f"{GX}/validations/orders/outputs/night-1/20260101/a.json": 31,
    f"{GX}/validations/orders/outputs/night-1/20260101/b.json": 31,
    f"{GX}/validations/orders/outputs/night-2/20260102/a.json": 31,
    f"{GX}/validations/orders/outputs/night-2/20260102/b.json": 30,
    f"{GX}/data_docs/local_site/validations/orders/outputs/night-1/20260101/a.html": 31,
    "reports/expectations/orders/night-1.json": 31,
    "reports/expectations/orders/night-1.html": 31,
    "reports/expectations/orders/night-2.json": 30,
    f"{GX}/data_docs/local_site/index.html": 400,
    "reports/certificates/orders/night-1.json": 4_000,
    "logs/airflow/dag_id=topics/run_id=1/attempt=1.log": 31,
    "logs/streams/orders.log": 30,
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    for name, days in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"0123456789")
        at_s = (NOW_MS - days * DAY_MS) // 1_000
        os.utime(path, (at_s, at_s))
    folders = {name: str(tmp_path / name) for name in ("data", "checkpoints", "reports", "logs", "run")}
    return Settings(profile="embedded", bootstrap_servers="", jars="", **folders)


def left(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_what_is_older_than_declared_goes_and_certificates_never(settings: Settings, tmp_path: Path) -> None:
    would = remove_old(settings, NOW_MS, only_count=True)
    assert left(tmp_path) == set(FILES)
    assert remove_old(settings, NOW_MS) == would
    assert {freed.kind: (freed.files, freed.bytes) for freed in would} == {
        "validations": (5, 50),
        "logs": (1, 10),
        "logs of drivers": (0, 0),
        "long logs": (0, 0),
    }
    gone = {name for name in FILES if ("night-1" in name and "certificates" not in name) or "topics" in name}
    assert set(FILES) - left(tmp_path) == gone
    assert not (tmp_path / "logs/airflow").exists(), "an empty folder goes with what was in it"
    assert all(freed.files == 0 for freed in remove_old(settings, NOW_MS))


def test_what_is_kept_for_ever_stays(settings: Settings, tmp_path: Path) -> None:
    keeping = "validations=for ever, logs=for ever"
    remove_old(replace(settings, keeping=keeping), NOW_MS)
    assert left(tmp_path) == set(FILES)


def test_a_log_that_grew_too_long_keeps_its_last_lines_and_its_writer(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "logs/streams/orders.log"
    with path.open("ab") as log:
        log.write(b"x" * 99 + b"\n")
        log.write((b"y" * 99 + b"\n") * (LOG_BYTES // 100))
        log.flush()
        remove_old(settings, NOW_MS)
        log.write(b"and goes on\n")
    lines = path.read_bytes().splitlines()
    assert LOG_BYTES_LEFT - 200 < path.stat().st_size <= LOG_BYTES_LEFT + 12
    assert set(lines) == {b"y" * 99, b"and goes on"}, "no line is cut in two"
    assert lines[-1] == b"and goes on"


@pytest.mark.parametrize("text", ["logs", "logs=", "logs=0 d", "logs=soon", "certificates=1 d"])
def test_a_wrong_time_is_refused_and_told_with_the_other_faults_of_the_environment(text: str) -> None:
    with pytest.raises(InvalidDeclaration):
        Keeping.of(text)
    with pytest.raises(InvalidSettings, match="RECOUNT_KEEPING"):
        Settings.from_environment({"RECOUNT_KEEPING": text})
