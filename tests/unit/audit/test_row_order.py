"""Rows that replace each other name batches in the order of their revisions, or an audit says so."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake

from recount.audit.compare.identity import identity_of
from recount.audit.integrity.table_files import reordered_rows
from recount.declare.aggregates import count
from recount.declare.columns import BATCH, GENERATION, REVISION
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, Written, stream
from recount.declare.windows import all_time, session
from recount.tables.places import Tables

CLICKS = stream(Topic(name="clicks", key="user", value=RecordSchema.of(n=LONG)))
COUNTS = CLICKS.windowed_by(all_time()).aggregate(n=count()).emit_each_batch()
SESSIONS = CLICKS.windowed_by(session("5 s", grace="0 s")).aggregate(n=count()).emit_each_batch()
Row = tuple[str | None, int, int, int | None]
"""Key, generation, batch, revision."""


def written(flow: object, name: str) -> Written:
    return Topology(name="counts", sinks=[flow.to(Topic(name=name, key="user"))]).written[0]  # type: ignore[attr-defined]


def told(
    folder: Path,
    *rows: Row,
    seed: tuple[int, int] | None = None,
    flow: object = COUNTS,
    windows: list[int] | None = None,
    rows_at_once: int = 100,
) -> dict[str, str | None]:
    tables, sink = Tables(str(folder)), written(flow, "out")
    types = {sink.key: pl.String, GENERATION: pl.Int32, BATCH: pl.Int64, REVISION: pl.Int32}
    frame = pl.DataFrame(list(rows), schema=types, orient="row")
    if windows is not None:
        frame = frame.with_columns(pl.Series("window_start", windows), pl.Series("window_end", windows))
    write_deltalake(tables.output(sink.table), frame, mode="overwrite", schema_mode="overwrite")
    found = reordered_rows(tables, [identity_of(sink)], seed, (1, 9), rows_at_once=rows_at_once)
    assert {(one.place, one.verdict) for one in found} <= {("table outputs/out", "altered")}
    return {one.evidence[0]: one.actual for one in found}


@pytest.mark.parametrize("rows_at_once", [1, 100])
def test_an_earlier_revision_in_a_later_batch_is_named(tmp_path: Path, rows_at_once: int) -> None:
    good: list[Row] = [("ann", 0, 1, 0), ("ann", 0, 1, 1), ("ann", 0, 2, 2), ("bob", 0, 3, 0), ("ann", 1, 0, 3)]
    assert told(tmp_path, *good, rows_at_once=rows_at_once) == {}
    moved: list[Row] = [("ann", 0, 4, 0), *good[1:]]
    assert told(tmp_path, *moved, rows_at_once=rows_at_once) == {
        "batch 0/4": "1 rows of an earlier revision in a later batch"
    }
    of_generation: list[Row] = [("ann", 1, 1, 1), ("ann", 1, 1, 2), *good[3:]]
    assert told(tmp_path, *of_generation, rows_at_once=rows_at_once) == {
        "batch 1/1": "2 rows of an earlier revision in a later batch"
    }


def test_rows_of_other_keys_and_windows_have_revisions_of_their_own(tmp_path: Path) -> None:
    assert told(tmp_path, ("ann", 0, 1, 1), ("bob", 0, 2, 0), (None, 0, 1, 1), (None, 0, 2, 2)) == {}
    two: list[Row] = [("ann", 0, 1, 1), ("ann", 0, 2, 0)]
    assert told(tmp_path, *two, flow=SESSIONS, windows=[5, 6]) == {}
    assert list(told(tmp_path, *two, flow=SESSIONS, windows=[5, 5])) == ["batch 0/2"]


def test_what_was_looked_at_before_and_what_comes_later_is_left_out(tmp_path: Path) -> None:
    rows: list[Row] = [("ann", 0, 1, 5), ("ann", 0, 2, 4), ("ann", 0, 3, 6), ("ann", 2, 0, 0), ("ann", 0, 4, None)]
    assert list(told(tmp_path, *rows)) == ["batch 0/2"]
    assert told(tmp_path, *rows, seed=(0, 1)) == {}


def test_rows_of_records_do_not_replace_each_other_and_a_table_may_lack(tmp_path: Path) -> None:
    assert told(tmp_path, ("ann", 0, 1, 1), ("ann", 0, 2, 0), flow=CLICKS) == {}
    assert reordered_rows(Tables(str(tmp_path / "none")), [identity_of(written(COUNTS, "out"))], None, (0, 1)) == []
