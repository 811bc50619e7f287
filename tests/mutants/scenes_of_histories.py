"""Scenes in which records ask for the oldest version that a history leaves them, and for older ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.mutants.scene import Scene
from tests.mutants.scenes_of_time import LEFT, record_of, topology_of
from tests.unit.engine.random_flows import TOPICS

from recount.declare.flow import RecordStream, Table, table

Step = tuple[str, int]
"""A topic and a time: there it has a record in each of its two partitions."""


def of_history(name: str) -> Scene:
    """The scene ``name``."""
    flow, steps = HISTORIES[name]
    batches = tuple(
        tuple(record_of(topic, at_ms, word) for topic, at_ms in batch for word in ("z0", "z1")) for batch in steps
    )
    return Scene(name=name, topology=topology_of(flow()), batches=batches)


def _versions() -> Table:
    return table(TOPICS["versions"]).select("vn")


def _at_once() -> RecordStream:
    return LEFT.select("ln").left_join_table(_versions(), history="9 ms")


def _waiting() -> RecordStream:
    return LEFT.select("ln").left_join_table(_versions(), grace="20 ms", history="5 ms")


def _of(topic: str, times: Iterable[int]) -> list[Step]:
    return [(topic, at_ms) for at_ms in times]


HISTORIES: dict[str, tuple[Callable[[], RecordStream], tuple[list[Step], ...]]] = {
    # at 100 the history ends at 91, at 104 at 95
    "the end of a history": (
        _at_once,
        (
            [*_of("versions", range(85, 101)), ("left", 100)],
            _of("left", (90, 91, 92, 89, 1)),
            _of("left", (104, 95)),
            _of("left", (94, 95, 96, 10)),
        ),
    ),
    # the record of 100 waits for 120, while 110 is the history's end, and 105 the newest version at it
    "a history while a record waits": (
        _waiting,
        (
            [*_of("versions", range(90, 101)), ("left", 100)],
            [*_of("versions", (105, 115)), ("left", 130)],
            _of("versions", (121, 160)),
        ),
    ),
}
