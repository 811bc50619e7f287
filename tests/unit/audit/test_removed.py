"""What retention may have taken is not looked for; all else is."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import polars as pl
import pytest
from tests.unit.spark.ledger_scene import STREAM, LedgerScene, proof_of

from recount.audit.removed import kept_late, kept_rejected, kept_windows, letters_due, released_by
from recount.core.retention import Released
from recount.core.schema import STRING, RecordSchema
from recount.core.tables import Tables
from recount.core.topics import Topic
from recount.core.topology import Topology, stream

BEFORE = Released(before_ms=1_000, cut=(0, 1), offsets={"clicks": {0: 5}})
CERTIFIED = [{"released": asdict(BEFORE)}, {"released": None}, {}]
"""One of them is of a release that did not say it."""
TOPOLOGY = Topology(
    name=STREAM,
    sinks=[
        stream(Topic(name="clicks", key="user", value=RecordSchema.of(page=STRING))).to(Topic(name="out", key="user"))
    ],
    retention="3 s",
)


@pytest.fixture
def scene(tmp_path: Path) -> LedgerScene:
    """Batches 0 to 7, a second apart."""
    scene = LedgerScene(tmp_path)
    scene.commit(*range(8))
    return scene


@pytest.mark.parametrize("moved", [False, True])
def test_what_was_passed_so_long_before_the_cut_is_released_and_never_less_than_before(
    scene: LedgerScene, tmp_path: Path, moved: bool
) -> None:
    if moved:
        scene.ledger.move()
    tables, cut = Tables(str(tmp_path)), proof_of(7)
    new = Released(before_ms=4_000, cut=(0, 7), offsets={"clicks": {0: 50}})
    assert released_by(tables, TOPOLOGY, cut, [], is_clean=True) == new
    assert released_by(tables, TOPOLOGY, cut, CERTIFIED, is_clean=True) == new
    assert released_by(tables, TOPOLOGY, proof_of(3), CERTIFIED, is_clean=True) == BEFORE
    assert released_by(tables, replace(TOPOLOGY, retention="8 s"), cut, CERTIFIED, is_clean=True) == BEFORE


def test_an_audit_that_finds_something_and_a_stream_that_keeps_all_release_nothing_new(tmp_path: Path) -> None:
    tables, cut = Tables(str(tmp_path)), proof_of(7)
    assert released_by(tables, TOPOLOGY, cut, CERTIFIED, is_clean=False) == BEFORE
    assert released_by(tables, TOPOLOGY, cut, [], is_clean=False) is None
    assert released_by(tables, replace(TOPOLOGY, retention=None), cut, [], is_clean=True) is None


def test_rows_on_the_bound_are_judged() -> None:
    rows = pl.DataFrame({"window_end": [999, 1_000, None], "stream_time_ms": [1_000, 999, None]})
    assert rows.filter(kept_windows(BEFORE))["window_end"].to_list() == [1_000, None]
    assert rows.filter(kept_late(BEFORE))["stream_time_ms"].to_list() == [1_000, None]
    assert rows.filter(kept_windows(None) & kept_late(None) & kept_rejected(None)).height == 3
    places = pl.DataFrame([("clicks", 0, 4), ("clicks", 0, 5), ("clicks", 1, 4), ("views", 0, 4)], RECORD, orient="row")
    assert places.filter(kept_rejected(BEFORE)).rows() == places.rows()[1:]


RECORD = ["topic", "partition", "offset"]


@pytest.mark.parametrize(
    ("letters", "due"),
    [([], [(0, 5), (1, 0)]), ([4], [(0, 4), (0, 5), (1, 0)]), ([3, 4, 5], [(0, 3), (0, 4), (0, 5), (1, 0)])],
)
def test_a_letter_that_retention_may_have_taken_is_asked_for_only_while_it_is_there(
    letters: list[int], due: list[tuple[int, int]]
) -> None:
    bad = pl.DataFrame([("clicks", 0, 3), ("clicks", 0, 4), ("clicks", 0, 5), ("clicks", 1, 0)], RECORD, orient="row")
    there = pl.DataFrame([("clicks", 0, offset) for offset in letters], bad.schema, orient="row")
    assert letters_due(bad, there, {0: 5}).select("partition", "offset").sort("partition", "offset").rows() == due
    assert letters_due(bad, there, {}).equals(bad)
