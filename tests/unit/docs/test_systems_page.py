"""docs/systems.md: every system S1 to S33, with streams, outputs, commands and certificates that are there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatch

import pytest
from tests.unit.docs.shown_commands import commands_in, page, require_typable

from recount.declare.registry import declared
from recount.declare.topology import Topology

SHOP = declared()
TOPICS = {written.topic.name: name for name, one in SHOP.topologies.items() for written in one.written}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the page."""

    id: str
    system: str
    declaration: str
    output: str
    seen: str
    certificate: str

    @property
    def streams(self) -> list[str]:
        return [name for name in names_in(self.declaration) if name in SHOP.topologies]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([a-z0-9-]+)`", cell)


def rows(text: str) -> list[Row]:
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if re.match(r"\| S\d", line)]
    names = ("id", "system", "declaration", "output", "seen", "certificate")
    return [Row(**dict(zip(names, cells, strict=True))) for cells in lines]


ROWS = rows(page("systems.md"))
OF_STREAMS = [row for row in ROWS if row.streams]


def require_row(row: Row) -> None:
    """What a row says of streams is so."""
    modules = re.findall(r"\(\.\./include/(\w+)/(\w+)\.py\)", row.declaration)
    assert {SHOP.modules[name] for name in row.streams} == {".".join(place) for place in modules}
    assert names_in(row.declaration) == row.streams, "a stream that is not declared"
    assert {TOPICS[topic] for topic in names_in(row.output)} == set(row.streams)
    folders = re.findall(r"`certificates/(.*?)/`", row.certificate)
    covered = {name for name in SHOP.topologies for folder in folders if fnmatch(name, folder)}
    assert covered == set(row.streams)
    seen = commands_in(row.seen)
    assert seen
    assert any(name in command for command in seen for name in row.streams)


def require_shown(topology: Topology, shown: set[str]) -> None:
    assert {written.topic.name for written in topology.written} <= shown, topology.name


def test_every_system_has_a_row() -> None:
    assert [row.id for row in ROWS] == [f"S{number}" for number in range(1, 34)]
    assert [row.id for row in ROWS[:25] if not row.streams] == ["S23"], "which happens in every stream"


@pytest.mark.parametrize("row", OF_STREAMS, ids=lambda row: row.id)
def test_streams_outputs_commands_and_certificates_of_a_row_are_there(row: Row) -> None:
    require_row(row)


def test_every_stream_and_every_topic_that_it_writes_is_in_a_row() -> None:
    assert {name for row in OF_STREAMS for name in row.streams} == set(SHOP.topologies)
    shown = {topic for row in OF_STREAMS for topic in names_in(row.output)}
    for topology in SHOP.topologies.values():
        require_shown(topology, shown)


@pytest.mark.parametrize("command", commands_in(page("systems.md")))
def test_each_command_can_be_typed(command: str) -> None:
    require_typable(command)
