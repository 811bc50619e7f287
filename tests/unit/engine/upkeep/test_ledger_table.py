"""Proofs move from the log of the state table to the ledger; none is ever in neither."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.unit.engine.ledger_scene import ROWS, LedgerScene, proof_of

from recount.engine.upkeep.trimming import BATCHES_BETWEEN, Compaction
from recount.runtime.errors import Terminal


@pytest.fixture
def scene(tmp_path: Path) -> LedgerScene:
    return LedgerScene(tmp_path)


def upkeep_of(scene: LedgerScene) -> Compaction:
    return Compaction([], scene.state, scene.ledger, trim=lambda: None)


def test_an_entry_says_after_the_move_what_it_said_before(scene: LedgerScene) -> None:
    scene.commit(0, 1, 2)
    before = list(scene.proofs.newest_first())
    assert {entry.rows_added for entry in before} == {2}
    assert all(entry.append_ms is not None for entry in before)
    scene.ledger.move()
    assert list(scene.proofs.newest_first()) == before


def test_a_long_log_is_moved_in_parts(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path, most_at_once=4)
    scene.commit(*range(11))
    scene.ledger.move()
    assert scene.moved == list(range(11))
    assert DeltaTable(scene.ledger.table.path).version() == 3


def test_when_the_move_fails_nothing_is_forgotten_and_the_next_round_makes_good(scene: LedgerScene) -> None:
    scene.commit(*range(45))
    scene.pass_hours()
    kept = scene.commits
    ledger = Path(scene.ledger.table.path)
    ledger.rename(ledger.with_name("out of reach"))
    upkeep_of(scene).round()
    assert set(kept) <= set(scene.commits)

    ledger.with_name("out of reach").rename(ledger)
    upkeep_of(scene).round()
    assert scene.commits[0] > 0
    assert scene.found == scene.moved[::-1] == list(reversed(range(45)))


def test_after_a_crash_between_move_and_forgetting_a_fresh_process_loses_and_doubles_nothing(
    scene: LedgerScene, tmp_path: Path
) -> None:
    scene.commit(*range(25))
    scene.pass_hours()
    scene.ledger.move()

    successor = LedgerScene(tmp_path)
    assert successor.found == list(reversed(range(25)))
    successor.commit(*range(25, 45))
    upkeep_of(successor).round()
    assert successor.commits[0] > 0
    assert successor.moved == list(range(45))
    assert successor.found == list(reversed(range(45)))


def test_after_a_failure_in_the_middle_of_a_long_move_a_fresh_process_goes_on_with_the_rest(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path, most_at_once=10)
    scene.commit(*range(45))
    scene.pass_hours()
    with scene.without_commit(30):
        upkeep_of(scene).round()
        assert scene.moved == list(range(29)), "three parts of ten commits, the first of which made the table"
        assert scene.commits[0] == 0

    upkeep_of(LedgerScene(tmp_path)).round()
    assert scene.commits[0] > 0
    assert scene.moved == list(range(45))
    assert scene.found == list(reversed(range(45)))


def test_commits_made_while_proofs_are_moved_are_neither_moved_nor_forgotten(scene: LedgerScene) -> None:
    scene.commit(*range(25))
    moved = scene.ledger.move()
    scene.commit(*range(25, 45))
    scene.pass_hours()
    scene.state.forget_commits(before=moved)
    assert scene.commits[0] == 19, "the checkpoint before the last commit that was moved"
    assert scene.found == list(reversed(range(45)))


def test_a_proof_that_is_nowhere_stops_the_upkeep_before_it_forgets_more(scene: LedgerScene) -> None:
    scene.commit(*range(25))
    scene.pass_hours()
    with scene.without_commit(5):
        with pytest.raises(Terminal) as refused:
            scene.ledger.move()
        assert refused.value.given.endswith("version 5")
        upkeep_of(scene).round()
        assert scene.moved == []
        assert scene.commits[:5] == [0, 1, 2, 3, 4]


def test_a_state_table_made_anew_does_not_inherit_the_ledger_of_the_old_one(scene: LedgerScene, tmp_path: Path) -> None:
    scene.commit(*range(25))
    scene.ledger.move()
    shutil.rmtree(scene.state.path)
    assert scene.found == []

    anew = LedgerScene(tmp_path)
    assert anew.found == []
    anew.commit(0, 1)
    assert anew.found == [1, 0]
    anew.pass_hours()
    upkeep_of(anew).round()
    assert anew.found == [1, 0]


@pytest.mark.parametrize("steps", [0, 10])
def test_a_reader_that_sees_proofs_moved_and_forgotten_after_some_steps_sees_each_once(
    scene: LedgerScene, steps: int
) -> None:
    scene.commit(*range(45))
    scene.pass_hours()
    reading = scene.proofs.newest_first()
    seen = [next(reading).proof.batch for _ in range(steps)]
    upkeep_of(scene).round()
    seen += [entry.proof.batch for entry in reading]
    assert scene.commits[0] > 30
    assert seen == list(reversed(range(45)))


def test_the_newest_proof_of_a_stream_that_rested_long_is_in_the_ledger(scene: LedgerScene) -> None:
    scene.commit(*range(7))
    scene.ledger.move()
    for number in range(13):  # commits without a proof, as compaction makes them
        scene.state.append(ROWS, writer="nobody", version=number)
    scene.pass_hours()
    upkeep_of(scene).round()
    assert scene.commits[0] > 7
    assert scene.proofs.newest() == proof_of(6)
    assert scene.proofs.newest((0, 3)) == proof_of(2)
    assert scene.proofs.newest((0, 0)) is None


def test_more_rows_than_a_page_are_read_in_order(scene: LedgerScene) -> None:
    scene.commit(0, 1, 2)
    scene.commit(0, 1, 2, 3, generation=1)
    scene.ledger.move()
    scene.commit(4, generation=1)
    found = [entry.proof.order for entry in replace(scene.proofs, first_page=4).newest_first()]
    assert found == [(1, 4), (1, 3), (1, 2), (1, 1), (1, 0), (0, 2), (0, 1), (0, 0)]


def test_a_round_is_due_by_the_number_of_the_batch_however_often_the_driver_is_started(scene: LedgerScene) -> None:
    scene.commit(*range(BATCHES_BETWEEN))
    for batch in range(BATCHES_BETWEEN):
        upkeep = upkeep_of(scene)  # of a driver that lives for this batch alone
        upkeep.batch_appended(batch)
    upkeep.wait()
    assert scene.moved == list(range(BATCHES_BETWEEN))
