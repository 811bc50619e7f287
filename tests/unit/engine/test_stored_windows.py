"""After a start the open windows lie in the tables; what a batch emits does not tell when they are read."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from tests.unit.engine.engine import Engine, LogRecord
from tests.unit.engine.test_open_windows import EACH_BATCH, FINAL, click, results

from recount.declare.topology import Topology
from recount.engine.state.open_windows import OpenWindows, StoredWindows

FIRST = [click(1), click(2, user=b"bob"), click(11)]
"""Two keys in the window [0, 10 s), which closes at 12 s, and one in the next."""


class Reader:
    """Reads from rows in memory, and remembers how many rows each read gave."""

    def __init__(self, rows: pl.DataFrame) -> None:
        self.rows = rows
        self.given: list[int] = []

    def __call__(self, condition: pl.Expr) -> pl.DataFrame:
        found = self.rows.filter(condition)
        self.given.append(found.height)
        return found


def restarted(topology: Topology) -> tuple[Engine, Reader]:
    """An engine after a batch of ``FIRST``, its open windows stored."""
    engine = Engine(topology)
    engine.batch(*FIRST)
    reader = Reader(engine.windows.rows)
    none = OpenWindows.none(engine.windows.node, engine.windows.grace_ms)
    engine.windows = replace(none, stored=StoredWindows("__key", none.held, reader))
    return engine, reader


@pytest.mark.parametrize("topology", [FINAL, EACH_BATCH])
@pytest.mark.parametrize("read_between_batches", [True, False])
@pytest.mark.parametrize("seconds", [(3, 4), (12, 3), (13, 30), (40, 41)])
def test_the_results_are_those_of_an_engine_that_went_on(
    topology: Topology, read_between_batches: bool, seconds: tuple[float, ...]
) -> None:
    went_on = Engine(topology)
    went_on.batch(*FIRST)
    engine, _ = restarted(topology)
    for second in seconds:
        batch: list[LogRecord] = [click(second, user=b"bob"), click(second, user=b"new")]
        assert results(engine.batch(*batch)) == results(went_on.batch(*batch))
        if read_between_batches and engine.windows.stored:
            engine.windows.stored.all()
    if read_between_batches:
        assert engine.windows.stored is None
        assert sorted(engine.windows.rows.rows()) == sorted(went_on.windows.rows.rows())


def test_a_batch_reads_the_windows_that_it_adds_to_and_no_others() -> None:
    engine, reader = restarted(EACH_BATCH)
    assert results(engine.batch(click(3, user=b"bob"))) == [("bob", 0, 2, 1)]
    assert reader.given == [1]


def test_what_was_found_once_is_at_hand() -> None:
    engine, reader = restarted(EACH_BATCH)
    engine.batch(click(3, user=b"bob"))
    assert results(engine.batch(click(4, user=b"bob"))) == [("bob", 0, 3, 2)]
    assert reader.given == [1]


def test_final_results_that_are_due_leave_with_those_that_no_batch_has_touched() -> None:
    engine, _ = restarted(FINAL)
    assert results(engine.batch(click(12, user=b"new"))) == [("ann", 0, 1, 0), ("bob", 0, 1, 0)]
    assert engine.windows.stored is None, "all were read"
