"""What was deleted from a Delta table is gone: its files, and the commits that hold least and largest values."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from tests.unit.engine.ledger_scene import LedgerScene

from recount.audit.carry.delta_frames import purge
from recount.lifecycle.erasure.erasing import count_rejected, purge_state, remove_rejected
from recount.lifecycle.erasure.holdings import Holding, predicate
from recount.runtime.errors import Terminal
from recount.tables.places import Tables

KEYS = ["zoe", "o'neil", 'say "so"', "", "zo\\e", "ζωή", "7"]


def table_of(folder: Path, keys: list[str]) -> Holding:
    path = str(folder / "table")
    for version, key in enumerate(keys):
        written = CommitProperties(app_transactions=[Transaction("stream", version)])
        rows = pl.DataFrame({"who is": [key, "other"], "n": [version, version]})
        write_deltalake(path, rows, mode="append", commit_properties=written)
    return Holding(name="outputs/table", path=path, column="who is")


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_found_whatever_letters_it_has(tmp_path: Path, key: str) -> None:
    holding = table_of(tmp_path, KEYS)
    assert holding.count(key) == 1
    holding.remove(key)
    holding.remove(key)
    assert holding.count(key) == 0
    assert pl.read_delta(holding.path).height == 2 * len(KEYS) - 1


def test_a_long_is_found_by_its_text(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    write_deltalake(path, pl.DataFrame({"id": [-7, 7, 70]}))
    holding = Holding(name="t", path=path, column="id")
    holding.remove("7")
    assert pl.read_delta(path)["id"].to_list() == [-7, 70]
    assert predicate('a"b', "o'n") == "CAST(\"a\"\"b\" AS VARCHAR) = 'o''n'"


def test_no_file_names_what_was_deleted_and_who_wrote_last_is_known_still(tmp_path: Path) -> None:
    holding = table_of(tmp_path, ["aa-zoe", "noah"])
    holding.remove("aa-zoe")
    assert [path for path in tmp_path.rglob("*.json") if "aa-zoe" in path.read_text()]
    purge(holding.path)
    purge(holding.path)
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"aa-zoe" not in path.read_bytes()
    for path in tmp_path.rglob("*.parquet"):
        assert "aa-zoe" not in repr(pl.read_parquet(path).to_dicts())
    assert sorted(pl.read_delta(holding.path)["who is"]) == ["noah", "other", "other"]
    assert DeltaTable(holding.path).transaction_version("stream") == 1
    write_deltalake(holding.path, pl.DataFrame({"who is": ["eve"], "n": [1]}), mode="append")
    assert pl.read_delta(holding.path).height == 4


def test_no_proof_is_lost_with_the_commits_of_a_state_table(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.commit(0, 1, 2)
    scene.ledger.move()
    scene.commit(3, 4)
    stream = Path(scene.state.path).parent.name
    purge_state(Tables(str(tmp_path)), stream)
    assert scene.found == [4, 3, 2, 1, 0]
    assert len(scene.commits) == 1
    scene.commit(5)
    scene.ledger.move()
    assert scene.found == [5, 4, 3, 2, 1, 0]


def test_commits_stay_where_a_proof_is_missing(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.commit(*range(12))
    before = scene.commits
    with scene.without_commit(3), pytest.raises(Terminal, match="neither in the log"):
        purge_state(Tables(str(tmp_path)), Path(scene.state.path).parent.name)
    assert set(before) <= set(scene.commits)


def test_rejected_records_go_where_their_detail_has_the_key_as_a_word(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    details = ["unknown patient zoe", "zoe: no fee", "zoey", "bad", "7 zoes"]
    rows = pl.DataFrame({"topic": "t", "partition": 0, "offset": range(5), "detail": details})
    write_deltalake(tables.rejected("bills"), rows)
    assert count_rejected(tables, "bills", "zoe") == 2
    remove_rejected(tables, "bills", "zoe")
    assert pl.read_delta(tables.rejected("bills"))["offset"].sort().to_list() == [2, 3, 4]
    assert count_rejected(tables, "notes", "zoe") == 0
