"""Parses DAG files as Airflow does, each in a fork of a process that has Airflow imported: FILE... -> JSON lines."""

from __future__ import annotations

import inspect
import json
import multiprocessing
import socket
import sys
import time
import typing
from datetime import UTC, datetime
from typing import Any, NoReturn
from unittest.mock import patch

from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.decoders import decode_timetable
from airflow.serialization.encoders import encode_timetable
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import TimeRestriction

HEAVY = ("pyspark", "delta", "great_expectations", "polars", "pandas", "kubernetes")
DEPLOYED = datetime(2026, 11, 23, 2, 30, tzinfo=UTC)


def no_network(*_: object) -> NoReturn:
    raise AssertionError("a DAG file used the network")


def first_run(dag: Any) -> str | None:
    """When a DAG that is new at ``DEPLOYED`` runs first by its schedule."""
    timetable = decode_timetable(encode_timetable(dag.timetable))  # as the scheduler has it
    never = TimeRestriction(earliest=None, latest=None, catchup=False)
    with patch("airflow.timetables.trigger.utcnow", return_value=DEPLOYED):
        run = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=never)
    return run.run_after.isoformat() if run else None


def yardstick_seconds() -> float:
    """CPU time of a fixed piece of work on this machine, now: Python's own ``typing`` module compiled ten times."""
    source = inspect.getsource(typing)
    began = time.process_time()
    for _ in range(10):
        compile(source, typing.__file__, "exec")
    return time.process_time() - began


def parse(file: str) -> dict[str, Any]:
    socket.socket.connect = no_network  # type: ignore[method-assign, assignment]
    before = set(sys.modules)
    began = time.process_time()
    bag = DagBag(dag_folder=file, bundle_name="dags", load_op_links=False)
    seconds = time.process_time() - began
    yardsticks = seconds / yardstick_seconds()
    for dag in bag.dags.values():
        DagSerialization.to_dict(dag)
    return {
        "file": file,
        "yardsticks": yardsticks,
        "errors": bag.import_errors,
        "heavy": sorted({name for name in HEAVY if name in sys.modules} - before),
        "dags": {
            name: {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks}
            for name, dag in bag.dags.items()
        },
        "groups": {name: getattr(dag.task_dict.get("run"), "group", None) for name, dag in bag.dags.items()},
        "paused": {name: dag.is_paused_upon_creation for name, dag in bag.dags.items()},
        "first_runs": {name: first_run(dag) for name, dag in bag.dags.items()},
        "rules": {
            name: {task.task_id: task.trigger_rule.value for task in dag.tasks} for name, dag in bag.dags.items()
        },
    }


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as forks:
        for found in forks.map(parse, sys.argv[1:], chunksize=1):
            print("PARSED " + json.dumps(found))
