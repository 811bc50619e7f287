"""What the tables of a stream hold, as its readers see it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from recount.core.archive import Archive
from recount.core.nodes import KEY
from recount.core.tables import Tables
from recount.core.topology import Topology, Written
from recount.play.expected_shop import Rows, counted
from recount.serve.answer import answer
from recount.serve.asked_sink import AskedSink
from recount.serve.question import Question

_ALL = 10_000_000


def held(tables: Tables, topology: Topology) -> Mapping[str, Rows]:
    """The rows of each sink, to be compared with those expected."""
    found = {}
    for written in topology.written:
        names = [name for name in written.fields if name != KEY]
        rows = rows_of(tables, topology, written)
        key = AskedSink(topology, written).key
        found[written.topic.name] = counted((row[key], {name: row[name] for name in names}) for row in rows)
    return found


def rows_of(tables: Tables, topology: Topology, written: Written) -> Sequence[Mapping[str, Any]]:
    """All rows of a sink; none before the first."""
    question = Question(sink=AskedSink(topology, written), limit=_ALL)
    return answer(tables, question, time.time_ns() // 1_000_000).rows


def archived(tables: Tables, archive: Archive) -> int:
    """How many records an archive has."""
    return _height(tables.archive(archive.topic.name))


def corrected(tables: Tables, topology: Topology) -> int:
    """How many rows backfills have corrected in the sinks of ``topology``."""
    return sum(_height(tables.corrections(written.table)) for written in topology.written)


def _height(path: str) -> int:
    return int(pl.scan_delta(path).select(pl.len()).collect().item())
