"""Logs of Delta tables that readers take in different ways, or that say of the columns what Recount never says.

A commit that both adds and removes one file, a compacted log, a partition column: Spark and delta-rs see other rows
then, or other values, and each audit reads with one of them only. Recount writes none of these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, PyFileSystem

from recount.audit.ledger_rules import LEDGER
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.core.verdict import Difference

_LOG = "_delta_log"
_COMMIT = re.compile(r"\d{20}\.json")
_COMPACTED = ".compacted.json"
_READERS, _WRITERS = 1, 2
"""The version of the protocol for readers, and the highest for writers."""


def strange_logs(tables: Tables, topology: Topology) -> list[Difference]:
    """A difference for each table of results, late and rejected records whose log is not one that Recount writes.

    Of commits that a checkpoint has replaced only what they have made of the columns is looked at: the files all
    readers take from the checkpoint then.
    """
    results = output_places(tables, topology) | correction_places(tables, topology)
    paths = results | side_places(tables, topology)
    found = {place: list(_strange(path)) for place, path in paths.items() if DeltaTable.is_deltatable(path)}
    return [
        Difference(
            kind=LEDGER,
            place=place,
            verdict="altered",
            expected="a log that every reader takes in one way",
            actual=f"{faults[0][1]}; faults in all: {len(faults)}",
            cause="Recount writes no such log, and readers do not agree about it: somebody has changed it",
            evidence=(f"file {_LOG}/{faults[0][0]}",),
        )
        for place, faults in found.items()
        if faults
    ]


def _strange(path: str) -> Iterator[tuple[str, str]]:
    """The name of each file of the log at which something is wrong, and what."""
    folder = PyFileSystem(DeltaStorageHandler(path))
    for name in sorted(one.base_name for one in folder.get_file_info(FileSelector(_LOG))):
        if name.endswith(_COMPACTED):
            yield name, "a compacted log, which Spark reads and delta-rs does not"
        elif _COMMIT.fullmatch(name):
            with folder.open_input_stream(f"{_LOG}/{name}") as file:
                actions = [json.loads(line) for line in file.read().splitlines() if line.strip()]
            added, removed = ({_file(one[kind]) for one in actions if kind in one} for kind in ("add", "remove"))
            yield from ((name, f"{file_name} added and removed") for file_name, _ in sorted(added & removed))
    table = DeltaTable(path)
    yield from ((f"{table.version():020}.json", fault) for fault in _faults_of_columns(table))


def _file(action: dict[str, Any]) -> tuple[str, str]:
    """The file, and which of its rows do not count: a commit may put one such list in the place of another."""
    return action["path"], json.dumps(action.get("deletionVector"), sort_keys=True)


def _faults_of_columns(table: DeltaTable) -> Iterator[str]:
    readers, writers = table.protocol().min_reader_version, table.protocol().min_writer_version
    if readers != _READERS or writers > _WRITERS:
        yield f"version {readers} of the protocol for readers, {writers} for writers"
    if table.metadata().partition_columns:
        yield f"partition columns {', '.join(table.metadata().partition_columns)}"
    for column in table.schema().fields:
        if not column.nullable or column.metadata:
            yield f"column {column.name} with rules of its own"


def output_places(tables: Tables, topology: Topology) -> dict[str, str]:
    """The path of each table of results."""
    return {f"table outputs/{node.table}": tables.output(node.table) for node in topology.written}


def correction_places(tables: Tables, topology: Topology) -> dict[str, str]:
    """The path of each table of corrections, which may not be there."""
    return {f"table corrections/{node.table}": tables.corrections(node.table) for node in topology.written}


def side_places(tables: Tables, topology: Topology) -> dict[str, str]:
    """The paths of the tables of late and of rejected records."""
    return {"late table": tables.late(topology.name), "rejected table": tables.rejected(topology.name)}
