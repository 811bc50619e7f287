"""The suites hold for a proved audit and fail, in the Data Docs too, for a violation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recount.audit.expectations import EXIT_FAILED, data_docs
from recount.audit.verdict_tables import CHECKS, folder_of
from recount.core.settings import Settings

Tables = Mapping[str, Sequence[dict[str, Any]]]
_FATES = {"counted": 8, "late": 1, "filtered": 0, "null_key": 0, "dead_lettered": 1}


def proved() -> dict[str, list[dict[str, Any]]]:
    """The tables of a small audit that found nothing wrong."""
    place = {"topic": "orders", "partition": 0, "start": 0, "end": 10}
    checks = [*CHECKS, "unexplained grace misses"]
    window = {"sink": "revenue", "key": "EU", "window_start": 0, "window_end": 300_000, "origin": None}
    verdicts = {"kafka_verdict": "match", "delta_verdict": "match", "completeness": "missed"}
    return {
        "raw_log": [{**place, **_FATES, "offsets": 10, "records": 10, "unaccounted": 0}],
        "batch_ledger": [{**place, "batch": "0/0", "records": 10, "fates": 10, "faults": 0}],
        "outputs": [{**window, **verdicts}],
        "reconciliation": [{"check": check, "differences": 0} for check in checks],
    }


def validated(tmp_path: Path, tables: Tables) -> subprocess.CompletedProcess[str]:
    folders = {name: str(tmp_path / name) for name in ("data", "checkpoints", "reports", "logs", "run", "jars")}
    settings = Settings(profile="embedded", bootstrap_servers="127.0.0.1:1", **folders)
    folder = folder_of(settings.reports, "revenue", "night-1")
    folder.mkdir(parents=True)
    for name, rows in tables.items():
        pq.write_table(pa.Table.from_pylist(list(rows)), folder / f"{name}.parquet")
    command = [sys.executable, "-m", "recount.audit.expectations", "--stream", "revenue", "--audit", "night-1"]
    environment = {**os.environ, **settings.to_environment()}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)


def test_all_suites_hold_for_a_proved_audit(tmp_path: Path) -> None:
    run = validated(tmp_path, proved())
    assert run.returncode == 0, run.stderr
    assert run.stdout.count(": holds") == 4
    assert data_docs(str(tmp_path / "reports")).exists()


def test_each_violation_fails_its_own_suite(tmp_path: Path) -> None:
    tables = proved()
    tables["raw_log"][0]["unaccounted"] = 1
    tables["batch_ledger"][0]["faults"] = 1
    tables["outputs"][0]["kafka_verdict"] = "duplicated"
    tables["reconciliation"][0]["differences"] = 1
    run = validated(tmp_path, tables)
    assert run.returncode == EXIT_FAILED, run.stderr
    assert run.stdout.count(": FAILED") == 4
    pages = (tmp_path / "reports" / "gx").rglob("*.html")
    assert any("Failed" in page.read_text(encoding="utf-8") for page in pages)


def test_the_violation_of_one_table_leaves_the_other_suites_alone(tmp_path: Path) -> None:
    tables = proved()
    tables["outputs"][0]["delta_verdict"] = "lost"
    run = validated(tmp_path, tables)
    assert run.returncode == EXIT_FAILED, run.stderr
    assert "outputs: FAILED" in run.stdout
    assert run.stdout.count(": holds") == 3
