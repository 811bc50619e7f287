"""Checksums and digests of rows that nobody writes any more, and of the code that judged them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from recount.audit.certificate.assembly import code_versions, sources_sha256
from recount.audit.integrity.evidence import written_rows
from recount.audit.integrity.table_checksums import KeptRows, TableChecksums, Unsettled
from recount.declare.columns import BACKFILL_NUMBER, BATCH, GENERATION, IS_NULL, ORIGIN, RESULT_TIME, REVISION
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.tables.places import Ageing, Released, Tables

CUT = (1, 4)


class Sink:
    """Its tables, of batches 1/3 and 1/4 and two published backfills."""

    def __init__(self, folder: Path) -> None:
        self.tables = Tables(str(folder))
        self.output([(1, 3), (1, 3), (1, 4)])
        self.corrections([0, 1, 1])

    def output(self, batches: Sequence[tuple[int | None, int | None]]) -> None:
        rows = pl.DataFrame(list(batches), {GENERATION: pl.Int64, BATCH: pl.Int64}, orient="row")
        write_deltalake(
            self.tables.output("revenue"), rows.with_columns(orders=pl.lit(2)), mode="append", schema_mode="merge"
        )

    def corrections(self, numbers: Sequence[int | None]) -> None:
        rows = pl.DataFrame({BACKFILL_NUMBER: list(numbers)}, {BACKFILL_NUMBER: pl.Int64})
        write_deltalake(self.tables.corrections("revenue"), rows, mode="append")

    def checksums(self, backfills: int = 2) -> TableChecksums:
        return TableChecksums.of(self.tables, "revenue", CUT, backfills)

    def holds(self, seen: TableChecksums, backfills: int = 2) -> bool:
        return seen.hold(self.tables, "revenue", CUT, backfills)


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path)


def test_later_batches_and_backfills_and_other_files_change_nothing(sink: Sink) -> None:
    seen = sink.checksums()
    assert msgspec.convert(json.loads(json.dumps(asdict(seen))), TableChecksums) == seen
    sink.output([(1, 5), (2, 0)])
    sink.corrections([2])
    DeltaTable(sink.tables.output("revenue")).optimize.compact()
    assert sink.holds(seen, backfills=3)


@pytest.mark.parametrize(
    ("column", "marks", "holds"),
    [
        (IS_NULL, [True, False, None], False),
        (IS_NULL, [False, None, None], True),
        (IS_NULL, [None, None, 1], False),
        ("Recount_Is_Null", [True, None, None], False),
        ("is_null", [True, True, True], True),
    ],
)
def test_a_younger_column_that_marks_rows_as_withdrawn_is_a_change_and_no_other_is(
    sink: Sink, column: str, marks: list[bool | int | None], holds: bool
) -> None:
    seen, path = sink.checksums(), sink.tables.output("revenue")
    rows = pl.read_delta(path).with_columns(pl.Series(column, marks))
    write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite")
    assert sink.holds(seen) is holds


def test_what_was_released_may_go_and_nothing_else(sink: Sink) -> None:
    path = sink.tables.output("revenue")
    ends = pl.DataFrame({GENERATION: 1, BATCH: 4, WINDOW_END: [99, 100, None]}, schema_overrides={WINDOW_END: pl.Int64})
    write_deltalake(path, ends, mode="append", schema_mode="merge")
    seen = TableChecksums.of(sink.tables, "revenue", CUT, 2, KeptRows(by="window", since_ms=100))
    assert msgspec.convert(json.loads(json.dumps(asdict(seen))), TableChecksums) == seen
    assert sink.holds(seen)
    DeltaTable(path).delete(f"{WINDOW_END} < 100")
    assert sink.holds(seen)
    DeltaTable(path).delete(f"{WINDOW_END} = 100")
    assert not sink.holds(seen)


REPLACED = [("a", 0, 97), ("a", 1, 98), ("b", 0, 99), ("b", 1, 100), (None, 0, 2), (None, 1, 3), ("c", 0, 1)]
"""Key, revision, time of the rows of a table."""


@pytest.mark.parametrize(
    ("by", "counted"),
    [("record", [("b", 1)]), ("table", [("a", 1), ("b", 1), (None, 1), ("c", 0)])],
)
def test_rows_of_records_may_go_by_their_time_and_of_a_table_those_that_another_replaced(
    sink: Sink, by: Ageing, counted: list[tuple[str | None, int]]
) -> None:
    path = sink.tables.output("totals")
    rows = pl.DataFrame(REPLACED, ["key", REVISION, RESULT_TIME], orient="row")
    write_deltalake(path, rows.with_columns(pl.lit(1).alias(GENERATION), pl.lit(4).alias(BATCH)))
    released = Released(before_ms=100, cut=CUT, offsets={})
    seen = TableChecksums.of(sink.tables, "totals", CUT, 0, KeptRows.of(by, released, "key"))
    assert msgspec.convert(json.loads(json.dumps(asdict(seen))), TableChecksums) == seen
    for key, revision, _ in REPLACED:
        if (key, revision) not in counted:
            DeltaTable(path).delete(f"{_is(key)} AND {REVISION} = {revision}")
            assert seen.hold(sink.tables, "totals", CUT, 0), (key, revision)
    for key, revision in counted:
        before = DeltaTable(path).version()
        DeltaTable(path).delete(f"{_is(key)} AND {REVISION} = {revision}")
        assert not seen.hold(sink.tables, "totals", CUT, 0), (key, revision)
        DeltaTable(path).restore(before)
    assert KeptRows.of(None, released) is None, "what gets old by nothing counts whole"
    assert KeptRows.of(by, None) is None


def _is(key: str | None) -> str:
    return "key IS NULL" if key is None else f"key = '{key}'"


@pytest.mark.parametrize(
    "change",
    [
        lambda sink: sink.output([(1, 3)]),
        lambda sink: DeltaTable(sink.tables.output("revenue")).delete(f"{BATCH} = 4"),
        lambda sink: DeltaTable(sink.tables.output("revenue")).update({"orders": "77"}, predicate=f"{BATCH} = 4"),
        lambda sink: sink.corrections([1]),
    ],
    ids=["added", "gone", "replaced by another of its batch", "under the number of a published backfill"],
)
def test_a_row_of_an_old_batch_or_backfill_that_is_another_shows(sink: Sink, change: Callable[[Sink], object]) -> None:
    seen = sink.checksums()
    change(sink)
    assert not sink.holds(seen)


@pytest.mark.parametrize("number", [2, 1 << 40, None])
def test_a_correction_that_nobody_publishes_shows_in_the_second_night(sink: Sink, number: int | None) -> None:
    before = sink.checksums()
    sink.corrections([number])
    assert sink.holds(before), "a backfill may be at work"
    waiting = sink.checksums()
    assert waiting.waiting == 1
    assert not sink.holds(waiting)
    assert sink.holds(waiting, backfills=3), "it was published since"
    assert waiting.are_those_of(sink.tables, "revenue", CUT), "whoever judges published backfills only need not care"
    DeltaTable(sink.tables.corrections("revenue")).delete(f"{BACKFILL_NUMBER} = 1")
    assert not waiting.are_those_of(sink.tables, "revenue", CUT)


def test_a_column_that_is_younger_does_not_count(sink: Sink) -> None:
    seen = sink.checksums()
    rows = pl.DataFrame({GENERATION: [1], BATCH: [5], "orders": [2], "country": ["FR"]})
    write_deltalake(sink.tables.output("revenue"), rows, mode="append", schema_mode="merge")
    assert sink.holds(seen)
    sink.output([(1, 4)])
    assert not sink.holds(seen)


def test_the_first_corrections_show_only_where_no_backfill_was_published(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    write_deltalake(tables.output("revenue"), pl.DataFrame({GENERATION: [1], BATCH: [1]}))
    seen = TableChecksums.of(tables, "revenue", CUT, 0)
    assert seen.corrections is None
    assert seen.hold(tables, "revenue", CUT, 0)
    write_deltalake(tables.corrections("revenue"), pl.DataFrame({BACKFILL_NUMBER: [0]}))
    assert seen.hold(tables, "revenue", CUT, 1), "a backfill of today"
    write_deltalake(tables.corrections("revenue"), pl.DataFrame({BACKFILL_NUMBER: [-1]}), mode="append")
    assert not seen.hold(tables, "revenue", CUT, 1)


WINDOWS = {"region": pl.String, WINDOW_START: pl.Int64, WINDOW_END: pl.Int64, "orders": pl.Int64}
RECORDS = {"region": pl.String, ORIGIN: pl.String, RESULT_TIME: pl.Int64, "orders": pl.Int64}


@pytest.mark.parametrize(
    ("schema", "rows", "unsettled"),
    [
        (WINDOWS, [("EU", 0, 9, 1), ("EU", 9, 18, 2)], ("EU", 0, 9, None)),
        (WINDOWS, [(None, 0, 9, 1), ("EU", 0, 9, 2)], (None, 0, 9, None)),
        (RECORDS, [("EU", "orders-0@1", 5, 1), ("EU", "orders-0@2", 5, 2)], ("EU", None, None, "orders-0@1")),
        (RECORDS, [("EU", None, 5, 1), ("EU", None, 6, 2)], ("EU", None, None, "at 5")),
    ],
)
def test_who_repairs_a_row_that_was_found_wrong_changes_nothing_else(
    tmp_path: Path,
    schema: dict[str, type[pl.DataType]],
    rows: list[tuple[object, ...]],
    unsettled: tuple[str | int | None, ...],
) -> None:
    wrong, right = rows
    table = Tables(str(tmp_path)).output("revenue")

    def written(*those: tuple[object, ...]) -> None:
        told = pl.DataFrame(list(those), schema, orient="row")
        written = told.with_columns(pl.lit(1).alias(GENERATION), pl.lit(4).alias(BATCH))
        write_deltalake(table, written, mode="overwrite")

    written(*rows)
    left_out = Unsettled(
        key="region",
        has_bounds=schema is WINDOWS,
        has_origin=schema is RECORDS,
        is_latest=schema is WINDOWS,
        rows=[unsettled],
    )
    seen = TableChecksums.of(Tables(str(tmp_path)), "revenue", CUT, 0, unsettled=left_out)
    seen = msgspec.convert(json.loads(json.dumps(asdict(seen))), TableChecksums)
    for repaired in ([right], [(*wrong[:-1], 7), right]):
        written(*repaired)
        assert seen.are_those_of(Tables(str(tmp_path)), "revenue", CUT)
    for other in ([wrong], [wrong, (*right[:-1], 7)], [wrong, right, right]):
        written(*other)
        assert not seen.are_those_of(Tables(str(tmp_path)), "revenue", CUT)


def test_a_row_shows_that_the_log_of_the_table_hides_under_a_batch_that_never_comes(sink: Sink) -> None:
    """Whoever can write to the folder can say in the log which batches a file holds: others would pass over it."""
    seen, log = sink.checksums(), Path(sink.tables.output("revenue"), "_delta_log")
    sink.output([(1, 4)])
    commit = max(log.glob("*.json"))
    commit.write_text(commit.read_text().replace(f'\\"{BATCH}\\":4', f'\\"{BATCH}\\":1000000'))
    assert "1000000" in commit.read_text()
    assert not sink.holds(seen)


def rows_of_batch(number: int, rows: int = 3, **change: Any) -> pl.DataFrame:
    made = [
        {GENERATION: 0, BATCH: number, "region": f"r{row}", "orders": row * number, **change} for row in range(rows)
    ]
    return pl.DataFrame(made)


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Four batches, a file each."""
    path = str(tmp_path / "revenue")
    for number in range(4):
        write_deltalake(path, rows_of_batch(number), mode="append")
    return path


def test_neither_files_nor_their_order_nor_how_many_rows_are_read_at_once_change_it(table: str, tmp_path: Path) -> None:
    digest = written_rows(table, None, (0, 3))
    assert digest.rows == 12
    DeltaTable(table).optimize.compact()
    assert written_rows(table, None, (0, 3)) == digest
    for at_once in (1, 4, 6, 7):
        assert written_rows(table, None, (0, 3), rows_at_once=at_once) == digest
    other = str(tmp_path / "other")
    write_deltalake(other, pl.concat([rows_of_batch(number) for number in (3, 1, 0, 2)]).reverse())
    assert written_rows(other, None, (0, 3)) == digest


def test_only_the_rows_of_the_judged_batches_count(table: str) -> None:
    before = written_rows(table, (0, 0), (0, 2))
    assert before.rows == 6
    write_deltalake(table, rows_of_batch(4), mode="append")
    write_deltalake(
        table,
        rows_of_batch(0, rows=1, region="of a generation after").with_columns(pl.lit(1).alias(GENERATION)),
        mode="append",
    )
    assert written_rows(table, (0, 0), (0, 2)) == before
    assert written_rows(table, (0, 4), (1, 0)).rows == 1


def test_a_row_more_less_or_changed_makes_another(table: str) -> None:
    before = written_rows(table, None, (0, 3))
    seen = {before}
    for change in (
        lambda: DeltaTable(table).delete(f"{BATCH} = 1 AND region = 'r2'"),
        lambda: write_deltalake(table, rows_of_batch(2, rows=1), mode="append"),
        lambda: DeltaTable(table).update({"orders": "orders + 1"}, predicate=f"{BATCH} = 3 AND region = 'r1'"),
    ):
        change()
        seen.add(written_rows(table, None, (0, 3)))
    assert len(seen) == 4


def test_a_column_that_is_added_later_leaves_the_digest_of_older_rows_alone(table: str) -> None:
    before = written_rows(table, None, (0, 3))
    write_deltalake(table, rows_of_batch(4, note="new"), mode="append", schema_mode="merge")
    assert written_rows(table, None, (0, 3)) == before


def test_another_line_of_code_is_another_version(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "rules.py").write_text("LIMIT = 1")
    before = sources_sha256(tmp_path)
    (tmp_path / "inner" / "rules.py").rename(tmp_path / "rules.py")
    moved = sources_sha256(tmp_path)
    (tmp_path / "rules.py").write_text("LIMIT = 2")
    assert len({before, moved, sources_sha256(tmp_path)}) == 3
    told = code_versions()
    assert all(len(told[name]) == 64 for name in ("sources_sha256", "installed_sha256", "lock_sha256"))
    assert told["recount"]
