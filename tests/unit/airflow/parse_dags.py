"""Parses DAG files as Airflow does, each in a fork of a process that has Airflow imported: FILE... -> JSON lines."""

from __future__ import annotations

import json
import multiprocessing
import socket
import sys
import time
from typing import Any, NoReturn

from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization

HEAVY = ("pyspark", "delta", "great_expectations", "polars", "pandas")


def no_network(*_: object) -> NoReturn:
    raise AssertionError("a DAG file used the network")


def parse(file: str) -> dict[str, Any]:
    socket.socket.connect = no_network  # type: ignore[method-assign, assignment]
    before = set(sys.modules)
    began = time.process_time()
    bag = DagBag(dag_folder=file, bundle_name="dags", load_op_links=False)
    seconds = time.process_time() - began
    for dag in bag.dags.values():
        DagSerialization.to_dict(dag)
    return {
        "file": file,
        "seconds": seconds,
        "errors": bag.import_errors,
        "heavy": sorted({name for name in HEAVY if name in sys.modules} - before),
        "dags": {
            name: {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks}
            for name, dag in bag.dags.items()
        },
        "rules": {
            name: {task.task_id: task.trigger_rule.value for task in dag.tasks} for name, dag in bag.dags.items()
        },
    }


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as forks:
        for found in forks.map(parse, sys.argv[1:], chunksize=1):
            print("PARSED " + json.dumps(found))
