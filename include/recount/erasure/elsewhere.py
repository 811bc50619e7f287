"""What an erasure does not reach: other keys' rows that have the key in a field, reports, streams that are refused."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import polars as pl
from deltalake import DeltaTable

from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.erasure.state_rows import operator_states

MAX_FILES = 50


def has_in_state(tables: Tables, topology: Topology, key: str) -> bool:
    """Whether the outputs of ``topology`` have rows of ``key``, or the rows of its operators' state name it."""
    for node in topology.written:
        for path in (tables.output(node.table), tables.corrections(node.table)):
            if DeltaTable.is_deltatable(path):
                mine = pl.scan_delta(path).filter(pl.col(node.key).cast(pl.String) == key)
                if mine.head(1).collect().height:
                    return True
    path = tables.state(topology.name)
    if not DeltaTable.is_deltatable(path):
        return False
    rows = pl.scan_delta(path)
    if "row" not in rows.collect_schema().names():
        return False
    told = pl.col("identity").str.contains(json.dumps(key, ensure_ascii=False), literal=True)
    told |= pl.col("row").str.contains(json.dumps(key, ensure_ascii=False), literal=True)
    if key.lstrip("-").isdigit():
        told |= pl.col("identity").str.contains(rf":{key}[,}}]")
    return bool(rows.filter(told).head(1).collect().height)


def under_other_keys(tables: Tables, topology: Topology, key: str) -> Iterator[str]:
    """Where rows of other keys have ``key`` in a text field."""
    yield from _in_outputs(tables, topology, key)
    yield from _in_operators(tables, topology, key)


def _in_operators(tables: Tables, topology: Topology, key: str) -> Iterator[str]:
    path = tables.state(topology.name)
    if not DeltaTable.is_deltatable(path):
        return
    told = json.dumps(key, ensure_ascii=False)
    for one in operator_states(topology, tables.root):
        rows = one.of(pl.scan_delta(path)).filter(pl.col("row").str.contains(told, literal=True))
        found = rows.filter(pl.col("value").ne_missing(pl.lit(key))).select(pl.len()).collect().item()
        if found:
            yield f"the state of [{one.node}]: {found} rows of other keys have it: erase those keys too"


def _in_outputs(tables: Tables, topology: Topology, key: str) -> Iterator[str]:
    for node in topology.written:
        path = tables.output(node.table)
        if not DeltaTable.is_deltatable(path):
            continue
        for name, kind in node.fields.items():
            if kind.kind != "string" or name == node.key or name not in pl.scan_delta(path).collect_schema().names():
                continue
            others = (pl.col(name) == key) & (pl.col(node.key).cast(pl.String) != key)
            found = pl.scan_delta(path).filter(others).select(pl.len()).collect().item()
            if found:
                yield f"outputs/{node.table}: {found} rows of other keys have it in {name}: erase those keys too"


def reports_naming(settings: Settings, key: str) -> list[str]:
    """The files below the reports that hold ``key``: certificates are never rewritten, nor are pages."""
    told = {key.encode(), json.dumps(key)[1:-1].encode(), json.dumps(key, ensure_ascii=False)[1:-1].encode()}
    found = []
    for folder, _, names in os.walk(settings.reports):
        for name in names:
            path = Path(folder, name)
            content = path.read_bytes() if path.is_file() else b""
            if any(one in content for one in told):
                found.append(str(path))
    return sorted(found)
