"""A snapshot loses the rows of a key, and no other; what is not found by key is refused."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from recount.audit.carry.store import SNAPSHOTS, AuditStore
from recount.lifecycle.erasure.erased_rows import (
    _stream_of,
    count_in_snapshot,
    erase_from_snapshots,
    frames_without_keys,
    ids_in_snapshot,
    shared_ids_in_snapshot,
    snapshot_sha256,
)
from recount.recompute.operators.carried import CLOCKS
from recount.runtime.errors import Terminal
from recount.tables.places import Tables

CLAIMS = [["zoe", "noah", None, "zoe"], [1, 2, 3, 4]]


def frame(part: str, name: str, columns: dict[str, list[object]]) -> list[tuple[object, ...]]:
    schema = json.dumps({"fields": [{"name": column} for column in columns]})
    batch = pa.table({str(at): values for at, values in enumerate(columns.values())})
    return [(part, name, schema, None), (part, name, None, _stream_of(batch))]


def put(tables: Tables, audit: str, *frames: list[tuple[object, ...]]) -> None:
    columns = {"part": pl.String, "name": pl.String, "schema": pl.String, "rows": pl.Binary}
    rows = pl.DataFrame([row for one in frames for row in one], columns, orient="row")
    AuditStore(None, tables, "notes").put_rows(SNAPSHOTS, audit, rows)


def of_notes(tables: Tables, audit: str) -> None:
    put(
        tables,
        audit,
        frame("truth", CLOCKS, {"c0": ['{"who": "zoe"}']}),
        frame("claims", "notes", {"key": CLAIMS[0], "n": CLAIMS[1]}),
        frame("corrected", "notes", {"n": [1], "key": ["zoe"]}),
    )


def test_the_rows_of_a_key_go_and_older_snapshots_with_them(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    for audit in ("night-1", "night-2"):
        of_notes(tables, audit)
    before = snapshot_sha256(tables, "notes", "night-2")
    assert count_in_snapshot(tables, "notes", "night-2", "zoe") == 3
    erase_from_snapshots(tables, "notes", "night-2", "zoe")
    after = snapshot_sha256(tables, "notes", "night-2")
    assert after != before
    erase_from_snapshots(tables, "notes", "night-2", "zoe")
    assert snapshot_sha256(tables, "notes", "night-2") == after
    rows = pl.read_delta(tables.audit("notes", SNAPSHOTS))
    assert set(rows["recount_audit"]) == {"night-2"}
    assert rows["schema"].drop_nulls().len() == 3
    kept = rows.filter((pl.col("part") == "claims") & pl.col("rows").is_not_null())["rows"].item()
    assert pa.ipc.open_stream(kept).read_all().to_pydict() == {"0": ["noah", None], "1": [2, 3]}


def test_a_key_that_is_not_there_leaves_the_snapshot_as_it_is(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    of_notes(tables, "night-1")
    before = snapshot_sha256(tables, "notes", "night-1")
    erase_from_snapshots(tables, "notes", "night-1", "eve")
    assert snapshot_sha256(tables, "notes", "night-1") == before


def test_rows_of_operators_go_by_the_column_that_has_the_key(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    put(
        tables,
        "night-1",
        frame("truth", "02-totable-youngest", {"c0": [1, 2, 3], "key": [47, None, 4]}),
        frame("complete", "03-suppress-held", {"key": ["47", "noah", "zoe"], "c1": ["a", "47", "c"]}),
        frame("unread", "unread", {"topic": ["visits"], "key": ["47"]}),
    )
    assert count_in_snapshot(tables, "notes", "night-1", "47") == 3
    erase_from_snapshots(tables, "notes", "night-1", "47")
    kept = pl.read_delta(tables.audit("notes", SNAPSHOTS)).filter(pl.col("rows").is_not_null())
    left = {name: pa.ipc.open_stream(rows).read_all().to_pydict() for name, rows in kept.select("name", "rows").rows()}
    assert left == {
        "02-totable-youngest": {"0": [2, 3], "1": [None, 4]},
        "03-suppress-held": {"0": ["noah", "zoe"], "1": ["47", "c"]},
    }


def test_ids_are_those_of_the_records_of_the_key(tmp_path: Path) -> None:
    tables, frames = Tables(str(tmp_path)), "02-deduplicate-records"
    known = {"key": ["zoe", "zoe", "noah", None], "c1": [1, 2, 3, 4], "id": ["a", "b", "b", "c"]}
    put(tables, "night-1", frame("truth", frames, known), frame("complete", frames, {"key": ["zoe"], "id": ["d"]}))
    assert ids_in_snapshot(tables, "notes", "night-1", frames, "zoe") == ["a", "b", "d"]
    assert shared_ids_in_snapshot(tables, "notes", "night-1", frames, "zoe") == 1
    assert ids_in_snapshot(tables, "notes", "night-2", frames, "zoe") == []
    assert ids_in_snapshot(tables, "notes", None, frames, "zoe") == []


@pytest.mark.parametrize("told", [("truth", "02-totable-rows"), ("unread", "unread")])
def test_rows_of_which_the_key_is_not_known_are_refused(tmp_path: Path, told: tuple[str, str]) -> None:
    tables = Tables(str(tmp_path))
    put(tables, "night-1", frame(*told, {"c0": ["zoe"]}), frame("truth", CLOCKS, {"c0": ["{}"]}))
    assert frames_without_keys(tables, "notes", "night-1") == [" ".join(told)]
    assert count_in_snapshot(tables, "notes", "night-1", "zoe") == 0
    with pytest.raises(Terminal, match="is not known"):
        erase_from_snapshots(tables, "notes", "night-1", "zoe")
