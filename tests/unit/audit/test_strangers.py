"""A row that names a batch which the stream does not have is seen, though no audit judges it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake
from tests.unit.audit.test_judgement import a_flow
from tests.unit.audit.test_ledger import batch

from recount.audit.cut.audited_ledger import Ledger
from recount.audit.integrity.strangers import hidden_rows, overfull_batches, strange_rows
from recount.certificate.finding import Difference
from recount.declare.columns import BATCH, GENERATION, IS_NULL
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.tables.places import Tables

TOPOLOGY = a_flow().topology
LEDGER = Ledger((batch(0, 10), batch(1, 20)))
COPIES = Topic(name="copies", key="k")


def told(folder: Path, *batches: tuple[int | None, int | None], settled: Ledger | None = None) -> list[Difference]:
    """What is said of an output table with a row of each of these batches."""
    tables = Tables(str(folder))
    named = pl.DataFrame(list(batches), schema={GENERATION: pl.Int32, BATCH: pl.Int64}, orient="row")
    write_deltalake(tables.output("revenue"), named, mode="overwrite")
    for path in (tables.late(TOPOLOGY.name), tables.rejected(TOPOLOGY.name)):
        write_deltalake(path, named.clear(), mode="overwrite")

    def now() -> Ledger:
        assert settled is not None, "it is not asked"
        return settled

    return strange_rows(tables, TOPOLOGY, LEDGER, now)


def test_rows_of_batches_of_the_stream_are_no_strangers_nor_of_those_that_came_since(tmp_path: Path) -> None:
    assert told(tmp_path, (0, 0), (0, 1)) == []
    assert told(tmp_path, (0, 1), (0, 2), settled=Ledger((*LEDGER.proofs, batch(2, 30)))) == []


def test_rows_of_a_batch_that_never_was_or_of_none_are_named_by_table_and_batch(tmp_path: Path) -> None:
    strange = [(2_000_000_000, 5), (2_000_000_000, 5), (None, 1), (0, None), (0, 3)]
    found = told(tmp_path, (0, 1), (0, 2), *strange, settled=Ledger((*LEDGER.proofs, batch(2, 30))))
    assert {one.evidence: one.actual for one in found} == {
        ("batch 2000000000/5",): "2 rows",
        ("batch ?/1",): "1 rows",
        ("batch 0/?",): "1 rows",
        ("batch 0/3",): "1 rows",
    }
    assert {(one.kind, one.place, one.verdict) for one in found} == {("batch ledger", "table outputs/revenue", "extra")}


def test_the_late_ledger_and_the_rejected_records_are_looked_at_too(tmp_path: Path) -> None:
    told(tmp_path, (0, 1))
    tables = Tables(str(tmp_path))
    row = pl.DataFrame({GENERATION: [9], BATCH: [9]}, schema={GENERATION: pl.Int32, BATCH: pl.Int64})
    write_deltalake(tables.late(TOPOLOGY.name), row, mode="append")
    write_deltalake(tables.rejected(TOPOLOGY.name), row, mode="append")
    found = strange_rows(tables, TOPOLOGY, LEDGER, lambda: LEDGER)
    assert [one.place for one in found] == ["late table", "rejected table"]


def test_a_batch_with_more_rows_than_it_wrote_has_one_of_another(tmp_path: Path) -> None:
    wrote = Ledger((replace(batch(0, 10), emitted={"revenue": 1}), replace(batch(1, 20), emitted={"revenue": 2})))
    of_earlier_release = Ledger((batch(0, 10), batch(1, 20)))
    tables = Tables(str(tmp_path))
    assert overfull_batches(tables, TOPOLOGY, wrote) == []
    for rows in [(0, 0), (0, 1), (0, 1)], [(0, 1)], [(0, 0), (0, 1), (0, 7), (0, 7)]:
        told(tmp_path, *rows, settled=LEDGER)
        assert overfull_batches(tables, TOPOLOGY, wrote) == []
    told(tmp_path, (0, 1), (0, 1), (0, 1))
    [found] = overfull_batches(tables, TOPOLOGY, wrote)
    assert (found.place, found.verdict) == ("table outputs/revenue", "altered")
    assert (found.expected, found.actual) == ("2 rows of batch 0/1", "3 rows")
    assert overfull_batches(tables, TOPOLOGY, of_earlier_release) == []


@pytest.mark.parametrize(
    ("column", "marks", "rows"),
    [
        (IS_NULL, [True, True, False, None], 2),
        (IS_NULL, [False, False, None, None], 0),
        (IS_NULL, [None, None, None, 1], 1),
        ("Recount_Is_Null", [True, None, None, None], 1),
        ("is_null", [True, True, True, True], 0),
    ],
)
def test_rows_of_an_aggregation_that_are_marked_as_withdrawn_are_named(
    tmp_path: Path, column: str, marks: list[bool | int | None], rows: int
) -> None:
    tables = Tables(str(tmp_path))
    assert hidden_rows(tables, TOPOLOGY) == []
    for path, place in ((tables.output("revenue"), "outputs"), (tables.corrections("revenue"), "corrections")):
        write_deltalake(path, pl.DataFrame({GENERATION: [0] * 4, column: marks}))
        found = {one.place: one.actual for one in hidden_rows(tables, TOPOLOGY)}
        assert found.get(f"table {place}/revenue") == (f"{rows} rows" if rows else None)
    assert all(one.verdict == "extra" for one in hidden_rows(tables, TOPOLOGY))


def test_a_topology_that_withdraws_rows_may_say_so(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    copy = Topology(name="copy", sinks=[stream(Topic(name="a", key="k", value=RecordSchema.of(n=LONG))).to(COPIES)])
    write_deltalake(tables.output("copies"), pl.DataFrame({IS_NULL: [True]}))
    assert hidden_rows(tables, copy) == []
