"""The late ledger as the interpreter has it, in the columns of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import polars as pl

from recount.advise.grace_judges import Shortfalls, attributed, judges_of, shortfalls
from recount.declare.topology import Topology
from recount.engine.stage.map_stage import LATE_SCHEMA
from recount.reference.records import LateRecord


def late_rows(late: Sequence[LateRecord]) -> pl.LazyFrame:
    rows = [{**asdict(one), "key": None if one.key is None else str(one.key)} for one in late]
    return pl.LazyFrame(rows, schema=LATE_SCHEMA)


def shortfalls_of(topology: Topology, late: Sequence[LateRecord], place: int = 0) -> Shortfalls:
    """Those of the judge at ``place``."""
    judges = judges_of(topology)
    return shortfalls(attributed(late_rows(late), judges), place, judges[place])
