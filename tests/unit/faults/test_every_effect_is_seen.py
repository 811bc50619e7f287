"""The package writes with nothing that tests/faults does not see: a new kind of effect has kill points at once."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from deltalake.table import TableAlterer, TableOptimizer
from pyspark.sql.readwriter import DataFrameWriter, DataFrameWriterV2

from recount.profile.home import Project

_READS_OF_DELTA = {
    *("count", "file_uris", "get_add_actions", "history", "is_deltatable", "load_as_version", "load_cdf", "metadata"),
    *("partitions", "protocol", "scan", "schema", "table_config", "table_uri", "to_pandas", "to_pyarrow_dataset"),
    *("to_pyarrow_table", "transaction_version", "update_incremental", "version", "deletion_vectors"),
    *("alter", "optimize", "merge", "generate", "repair"),  # not called of a table
}
_NO_EFFECT_IN_KAFKA = {"poll", "purge", "close", "list_topics", "set_sasl_credentials", "cluster_id"}
_CHANGES_TOPICS = ("create_", "delete_", "alter_", "incremental_", "elect_", "remove_")
_WRITERS_OF_SPARK = ("save", "saveAsTable", "insertInto", "parquet", "json", "csv", "text", "orc", "jdbc")
_FILES = {
    *("write_text", "write_bytes", "unlink", "link", "symlink_to", "hardlink_to", "rmdir", "truncate", "touch"),
    *("write_table", "write_dataset", "write_parquet", "write_delta", "write_csv", "write_ipc", "sink_parquet"),
    *("rmtree", "copytree", "copyfile", "copy2", "removedirs", "sink_delta", "toTable"),
}

_TO_WRITE = {"w", "wb", "a", "ab", "x", "xb", "r+", "r+b"}

# the profile on one's own machine, Airflow's side and files that no stream reads; the rest with its reason
_ELSEWHERE = ("profile/", "airflow/", "lifecycle/old_files.py")
_ALLOWED = {
    ("kafka/topics_on_cluster.py", "create_topics"): "by `recount topics`, which a person repeats",
    ("kafka/topics_on_cluster.py", "incremental_alter_configs"): "the same",
    ("play/play_command.py", "create_topics"): "by `make play`, which a person repeats",
    ("lifecycle/retirement.py", "delete_topics"): "by `recount retire --remove-topic`, which a person repeats",
    ("lifecycle/retirement.py", "rmtree"): "by `recount retire --tables remove`, which a person repeats",
    ("project/init_command.py", "copyfile"): "by `recount init`, before there is a stream",
    ("audit/certificate/issuing.py", "open to write"): "a part of a file, which counts when it replaces it; and a lock",
    ("audit/expectations/validation.py", "open to write"): "a lock",
    ("runtime/installation.py", "open to write"): "a file that counts once it has replaced the one before",
    ("audit/certificate/signing.py", "open to write"): "by `recount keys`, once in an installation",
    ("engine/commit/delta_table.py", "write_parquet"): "a file that no commit names yet: upkeep removes what none does",
    ("engine/exchange/part_hosts.py", "open to write"): "a lock",
    ("engine/exchange/part_hosts.py", "truncate"): "the same, which names the process that it is about",
    ("recompute/frames/duck_database.py", "rmtree"): "what a database has spilled, when it is closed",
    (
        "recompute/frames/duck_handover.py",
        "parquet",
    ): "rows between two engines; what is left behind a later audit removes",
}


def _writing_names() -> set[str]:
    """All calls of the libraries that the package writes with, but for those that are known to change nothing."""
    delta = {name for kind in (DeltaTable, TableAlterer, TableOptimizer) for name in vars(kind)} - _READS_OF_DELTA
    kafka = set(dir(confluent_kafka.Producer)) - _NO_EFFECT_IN_KAFKA
    admin = {name for name in dir(AdminClient) if name.startswith(_CHANGES_TOPICS)}
    spark = {name for kind in (DataFrameWriter, DataFrameWriterV2) for name in vars(kind) if name in _WRITERS_OF_SPARK}
    known = delta | kafka | admin | spark | _FILES | {"write_deltalake", "open to write"}
    return {name for name in known if not name.startswith("_")}


def _calls(source: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            modes = {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
            is_writing = name in ("open", "fdopen") and modes & _TO_WRITE
            yield "open to write" if is_writing else name, node.lineno


@pytest.fixture(scope="module")
def seen(project: Project) -> set[str]:
    """What is wrapped, as a process of the suite wraps it; here it would stay so for all other tests."""
    program = "from tests.faults import primitives; primitives.wrap(); print(*primitives.SEEN)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=project.root, capture_output=True, text=True, check=True, timeout=120
    )
    return set(done.stdout.split())


def test_the_package_writes_with_nothing_that_the_suite_does_not_see(project: Project, seen: set[str]) -> None:
    package = Path(project.root) / "include" / "recount"
    writing, unseen, met = _writing_names(), [], set()
    for module in sorted(package.rglob("*.py")):
        place = module.relative_to(package).as_posix()
        if place.startswith(_ELSEWHERE):
            continue
        for name, line in _calls(module.read_text()):
            if name not in writing or (place, name) in _ALLOWED:
                continue
            met.add(name)
            if name not in seen:
                unseen.append(f"{place}:{line} {name}")
    assert unseen == []
    assert met >= {"write_deltalake", "commit_transaction", "save", "compact", "link"}
