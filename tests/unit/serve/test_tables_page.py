"""What docs/tables.md shows gives the same rows as an answer does, as of every batch and with corrections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from tests.unit.serve.snippets import rows_of, snippet
from tests.unit.serve.test_answers import SHOP, ask, count_correction, order, shown
from tests.unit.serve.written_streams import WrittenStream, as_arrivals, recorded_ms

BATCHES = 3


@pytest.fixture
def stream(tmp_path: Path) -> WrittenStream:
    """Users who order again and again."""
    stream = WrittenStream(SHOP["order-counts"], tmp_path)
    cuts = [[order("ann", 1), order("bob", 2)], [order("ann", 3), order("eve", 4)], [order("bob", 5)]]
    stream.write([as_arrivals("orders", *cut) for cut in cuts])
    return stream


@pytest.mark.parametrize("reader", ["Polars", "DuckDB"])
def test_a_snippet_reads_what_an_answer_says(stream: WrittenStream, reader: str) -> None:
    for batch in range(BATCHES):
        answered = sorted(shown(ask(stream, at=str(recorded_ms(batch))), "user_id", "orders"))
        assert rows_of(reader, data=stream.tables.root, generation=0, batch=batch) == answered != []


def test_corrections_are_read_as_the_page_says(stream: WrittenStream) -> None:
    for number, (user, orders, batch) in enumerate([("ann", 7, 1), ("bob", 8, 1), ("eve", None, 2)]):
        stream.correct("order_counts", count_correction(number, user, orders, batch))
    connection = duckdb.connect()
    for name, path in (("outputs", stream.tables.output), ("corrections", stream.tables.corrections)):
        connection.register(name, DeltaTable(path("order_counts")).to_pyarrow_dataset())
    found: list[Any] = connection.execute(snippet("Rows that backfills have corrected", "sql")).fetchall()
    assert sorted(found) == sorted(shown(ask(stream), "user_id", "orders")) == [("ann", 7), ("bob", 2)]


def test_the_page_names_the_columns_of_an_output_table(stream: WrittenStream) -> None:
    page = (Path(__file__).parents[3] / "docs" / "tables.md").read_text()
    columns = pl.read_delta(stream.tables.output("order_counts")).columns
    assert [name for name in columns if name.startswith("recount_") and f"`{name}`" not in page] == []
