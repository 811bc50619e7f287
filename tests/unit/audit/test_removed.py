"""What retention may have taken is not looked for; all else is."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.unit.engine.ledger_scene import ROWS, STREAM, LedgerScene, proof_of

from recount.audit.carry.removed import kept_late, kept_rejected, letters_due, released_by
from recount.audit.cut.audited_ledger import Ledger
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import Frame, frame_of
from recount.tables.places import Released, Tables

BEFORE = Released(before_ms=1_000, cut=(0, 1), offsets={"clicks": {0: 5}})
CERTIFIED = [{"outcome": "violation", **one} for one in ({"released": asdict(BEFORE)}, {"released": None}, {})]
"""One of them is of a release that did not say it."""
TOPOLOGY = Topology(
    name=STREAM,
    sinks=[
        stream(Topic(name="clicks", key="user", value=RecordSchema.of(page=STRING))).to(Topic(name="out", key="user"))
    ],
    retention="3 s",
)


def ledger_of(*batches: int) -> Ledger:
    return Ledger(tuple(map(proof_of, batches)))


def certified(batch: int, outcome: str = "match") -> dict[str, Any]:
    """What the certificate of an audit up to ``batch`` says."""
    at_ms = 1_000 * batch
    return {
        "outcome": outcome,
        "released": None,
        "cut": {"generation": 0, "batch": batch, "batch_timestamp_ms": at_ms, "frontier_ms": at_ms},
        "partitions": [{"topic": "clicks", "partition": 0, "start": 0, "end": 10 * batch + 10}],
    }


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
    tables, ledger = Tables(str(tmp_path)), ledger_of(*range(8))
    new = Released(before_ms=4_000, cut=(0, 7), offsets={"clicks": {0: 50}})
    assert released_by(tables, TOPOLOGY, ledger, [], is_clean=True) == new
    assert released_by(tables, TOPOLOGY, ledger, CERTIFIED, is_clean=True) == new
    assert released_by(tables, TOPOLOGY, ledger_of(3), CERTIFIED, is_clean=True) == BEFORE
    assert released_by(tables, replace(TOPOLOGY, retention="8 s"), ledger, CERTIFIED, is_clean=True) == BEFORE


def test_an_audit_that_finds_something_and_a_stream_that_keeps_all_release_nothing_new(tmp_path: Path) -> None:
    tables, ledger = Tables(str(tmp_path)), ledger_of(7)
    assert released_by(tables, TOPOLOGY, ledger, CERTIFIED, is_clean=False) == BEFORE
    assert released_by(tables, TOPOLOGY, ledger, [], is_clean=False) is None
    assert released_by(tables, replace(TOPOLOGY, retention=None), ledger, [], is_clean=True) is None


@pytest.mark.parametrize(
    ("batch", "forged", "before_ms"),
    [
        (4, {}, 4_000),
        (4, {"frontier_ms": 2**60}, 5_000),
        (5, {"batch_timestamp_ms": 0, "frontier_ms": 2**60}, 4_000),
        (6, {"batch_timestamp_ms": 0}, 4_000),
        (4, {"frontier_ms": 3_500}, 3_500),
    ],
)
def test_an_old_batch_releases_no_more_than_the_audits_behind_it_had_judged(
    tmp_path: Path, batch: int, forged: dict[str, int], before_ms: int
) -> None:
    scene = LedgerScene(tmp_path)
    for number in range(8):
        proof = replace(proof_of(number), **forged) if number == batch else proof_of(number)
        scene.state.append(ROWS, writer=proof.checkpoint_id, version=number, metadata=proof.to_json())
    audits = [certified(2), certified(5), certified(5, outcome="violation") | {"cut": certified(0)["cut"]}]
    tables, ledger = Tables(str(tmp_path)), Ledger((*ledger_of(6).proofs, proof_of(7)))
    found = released_by(tables, TOPOLOGY, ledger, audits, is_clean=True)
    assert found == Released(before_ms=before_ms, cut=(0, 7), offsets={"clicks": {0: 50}})


FAR_MS = 4_000_000_000_000
"""In 2096."""


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize(
    ("wrong", "before_ms"),
    [
        ({6: 0}, 4_000),
        ({5: 0, 6: 0, 7: 0}, 4_000),
        ({2: FAR_MS}, 4_000),
        ({3: FAR_MS, 4: FAR_MS}, 2_000),
        ({2: 3_500}, 4_000),
        ({2: 6_500}, 1_000),
    ],
)
def test_a_clock_that_was_wrong_for_some_batches_releases_nothing_sooner(
    tmp_path: Path, wrong: dict[int, int], before_ms: int, moved: bool
) -> None:
    """A machine that starts without a clock is in 1970: all that was judged before was released, and then removed."""
    scene = LedgerScene(tmp_path)
    proofs = [replace(proof_of(number), batch_timestamp_ms=wrong.get(number, 1_000 * number)) for number in range(9)]
    for proof in proofs[:8]:
        scene.state.append(ROWS, writer=proof.checkpoint_id, version=proof.batch, metadata=proof.to_json())
    if moved:
        scene.ledger.move()
    last = replace(proofs[7], batch_timestamp_ms=7_000)
    found = released_by(Tables(str(tmp_path)), TOPOLOGY, Ledger((*proofs[:7], last)), [], is_clean=True)
    assert found is not None
    assert found.before_ms == before_ms


def test_a_clock_that_is_ahead_at_the_last_batch_releases_no_more_than_that_of_the_audit(
    scene: LedgerScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recount.audit.carry.removed.time.time_ns", lambda: 7_000_000_000)
    ahead = Ledger((*ledger_of(*range(7)).proofs, replace(proof_of(7), batch_timestamp_ms=FAR_MS)))
    found = released_by(Tables(str(tmp_path)), TOPOLOGY, ahead, [], is_clean=True)
    assert found == Released(before_ms=4_000, cut=(0, 7), offsets={"clicks": {0: 50}})


def test_a_batch_that_no_audit_has_judged_releases_nothing(scene: LedgerScene, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    assert released_by(tables, TOPOLOGY, ledger_of(6, 7), [], is_clean=True) is None
    assert released_by(tables, TOPOLOGY, ledger_of(6, 7), [certified(2)], is_clean=True) is None
    assert released_by(tables, TOPOLOGY, ledger_of(6, 7), [certified(4, "violation")], is_clean=True) is None


def test_rows_on_the_bound_are_judged() -> None:
    rows = pl.DataFrame({"window_end": [999, 1_000, None], "stream_time_ms": [1_000, 999, None]})
    assert rows.filter(kept_late(BEFORE))["stream_time_ms"].to_list() == [1_000, None]
    assert rows.filter(kept_late(None) & kept_rejected(None)).height == 3
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
    database, bad = Database(), [("clicks", 0, 3), ("clicks", 0, 4), ("clicks", 0, 5), ("clicks", 1, 0)]

    def frame(rows: list[tuple[str, int, int]]) -> Frame:
        found = pl.DataFrame(rows, RECORD, orient="row").to_arrow()
        return frame_of(database, [found], found.schema)

    there = frame([("clicks", 0, offset) for offset in letters])
    found = letters_due(frame(bad), there, {0: 5}).sorted_by("partition", "offset").rows()
    assert [(row["partition"], row["offset"]) for row in found] == due
    assert letters_due(frame(bad), there, {}).number() == len(bad)
