"""The tables of a stream, by the place that differences in them name."""

from __future__ import annotations

from recount.core.tables import Tables
from recount.core.topology import Topology


def output_places(tables: Tables, topology: Topology) -> dict[str, str]:
    """The path of each table of results."""
    return {f"table outputs/{node.table}": tables.output(node.table) for node in topology.written}


def correction_places(tables: Tables, topology: Topology) -> dict[str, str]:
    """The path of each table of corrections, which may not be there."""
    return {f"table corrections/{node.table}": tables.corrections(node.table) for node in topology.written}


def side_places(tables: Tables, topology: Topology) -> dict[str, str]:
    """The paths of the tables of late and of rejected records."""
    return {"late table": tables.late(topology.name), "rejected table": tables.rejected(topology.name)}
