"""What an answer counts: batches, the newest rows, corrections, what audits judged; docs/tables.md says the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.unit.serve.written_streams import FIRST_MS, WrittenStream, as_arrivals, recorded_ms, rows_of, snippet

from recount.declare.columns import (
    BACKFILL,
    BACKFILL_NUMBER,
    BATCH,
    GENERATION,
    IS_NULL,
    ORIGIN,
    PUBLISHED_AT,
    RESULT_TIME,
    REVISION,
)
from recount.declare.registry import declared
from recount.runtime.errors import Terminal, Transient
from recount.serve.answer import AUDITED, ROWS, Answer, answer
from recount.serve.asked_sink import AskedSink, asked_sink
from recount.serve.question import Question

SHOP = declared().topologies
HOUR_S, HOUR_MS = 3_600, 3_600_000
NOW_MS = recorded_ms(10)


def order(name: str, second: int, amount: str = "1.50", number: str = "o1") -> tuple[str, int, dict[str, Any]]:
    """An order of the product, the user and the customer ``name``."""
    by_name = dict.fromkeys(("product", "user_id", "customer_id"), name)
    return number, second, {"order_id": number, "amount": amount, **by_name}


def ask(stream: WrittenStream, now_ms: int = NOW_MS, sink: str | None = None, **texts: str) -> Answer:
    asked = asked_sink(stream.topology, sink)
    return answer(stream.tables, Question.of(asked, now_ms=now_ms, **texts), now_ms)


def shown(found: Answer, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in found.rows]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """By stream its tables; written once."""
    logs = {
        # tea in two hours, the second revised once; a mug in the first
        "product-revenue": [
            [order("tea", 10), order("mug", 20, "20"), order("tea", HOUR_S, "2.25")],
            [order("tea", HOUR_S + 1, "1")],
        ],
        "order-counts": [[order("ann", 1), order("bob", 2)], [order("ann", 3)]],
        "order-summary": [[order("ann", 10), order("ann", 40)]],
        "high-value-orders": [[order("tea", at, "200", number) for at, number in ((1, "o1"), (2, "o2"), (3, "o1"))]],
    }
    roots = {name: tmp_path_factory.mktemp(name) for name in logs}
    for name, cuts in logs.items():
        WrittenStream(SHOP[name], roots[name]).write([as_arrivals("orders", *cut) for cut in cuts])
    return roots


Copied = Callable[[str], WrittenStream]


@pytest.fixture
def copied(written: Mapping[str, Path], tmp_path: Path) -> Copied:
    """A stream with tables of its own, which a test may write to."""

    def copy(name: str) -> WrittenStream:
        return WrittenStream(SHOP[name], Path(shutil.copytree(written[name], tmp_path / name)))

    return copy


@pytest.fixture
def revenue(copied: Copied) -> WrittenStream:
    return copied("product-revenue")


@pytest.fixture
def counts(copied: Copied) -> WrittenStream:
    return copied("order-counts")


WINDOW = ("product", "window_start", "hourly_revenue")


def test_the_newest_rows_come_first_so_that_one_row_of_a_key_is_its_current_value(revenue: WrittenStream) -> None:
    assert shown(ask(revenue, key="tea"), *WINDOW) == [("tea", HOUR_MS, Decimal("3.25")), ("tea", 0, Decimal("1.50"))]
    current = ask(revenue, key="tea", limit="1")
    assert (current.total, shown(current, *WINDOW)) == (2, [("tea", HOUR_MS, Decimal("3.25"))])
    none = ask(revenue, key="coffee")
    assert (none.state, none.total, none.rows) == ("ready", 0, [])
    assert b'"hourly_revenue":20.00' in ask(revenue, key="mug").to_json(), "with all digits of a decimal"


@pytest.mark.parametrize(
    ("at_ms", "batch"),
    [(recorded_ms(0), 0), (recorded_ms(1) - 1, 0), (recorded_ms(1), 1), (NOW_MS, 1)],
    ids=["as the first was recorded", "before the second", "as the second was recorded", "now"],
)
def test_a_batch_counts_from_the_time_at_which_it_was_recorded(revenue: WrittenStream, at_ms: int, batch: int) -> None:
    found = ask(revenue, key="tea", limit="1", at=str(at_ms))
    assert found.document["as_of"]["batch"] == batch
    assert found.document["as_of"]["age_ms"] == at_ms - recorded_ms(batch)
    assert shown(found, "hourly_revenue", REVISION) == [((Decimal("2.25"), 0), (Decimal("3.25"), 1))[batch]]


def test_before_the_first_batch_nothing_can_be_said(revenue: WrittenStream, tmp_path: Path) -> None:
    found = ask(revenue, at=str(FIRST_MS - 1))
    assert (found.state, found.not_ready) == ("not ready", "product-revenue had not committed a batch by then")
    found = ask(WrittenStream(SHOP["product-revenue"], tmp_path / "never-run"))
    said = {"state": "not ready", "reason": "product-revenue has not committed a batch yet", "asked_ms": NOW_MS}
    assert json.loads(found.to_json()) == {
        **dict.fromkeys(("stream", "sink"), "product-revenue"),
        **said,
        **dict.fromkeys(("as_of", "audit", "kept_since_ms")),
        "total": 0,
        "rows": [],
    }


def test_a_table_of_another_declaration_is_not_ready(revenue: WrittenStream) -> None:
    [sink] = revenue.topology.sinks
    other = replace(sink.input, aggregates={"turnover": sink.input.aggregates["hourly_revenue"]})
    changed = WrittenStream(replace(revenue.topology, sinks=[replace(sink, input=other)]), revenue.root)
    assert ask(changed).not_ready == "the table outputs/product_revenue has no turnover: another declaration made it"


def test_rows_of_a_batch_that_is_not_in_the_ledger_yet_are_not_seen_and_others_cannot_be_hidden(
    revenue: WrittenStream,
) -> None:
    path = revenue.tables.output("product_revenue")
    rows = pl.scan_delta(path).collect()
    write_deltalake(path, rows.with_columns(pl.lit(2).cast(pl.Int64).alias(BATCH)), mode="append")
    found = ask(revenue)
    assert (found.total, found.document["as_of"]["batch"]) == (3, 1)
    # nor can rows of an aggregation be hidden by a column that its table has not
    write_deltalake(
        path, rows.with_columns(pl.lit(value=True).alias(IS_NULL)), mode="overwrite", schema_mode="overwrite"
    )
    assert ask(revenue).rows == found.rows


@pytest.mark.parametrize(
    ("at_ms", "windows"), [(-1, []), (0, [0]), (HOUR_MS - 1, [0]), (HOUR_MS, [HOUR_MS]), (2 * HOUR_MS, [])]
)
def test_a_time_window_has_its_start_in_it_and_not_its_end(
    revenue: WrittenStream, at_ms: int, windows: list[int]
) -> None:
    assert [row["window_start"] for row in ask(revenue, key="tea", window=str(at_ms)).rows] == windows


@pytest.mark.parametrize(("second", "sessions"), [(9, 0), (10, 1), (40, 1), (41, 0)])
def test_a_session_has_both_ends_in_it(written: Mapping[str, Path], second: int, sessions: int) -> None:
    stream = WrittenStream(SHOP["order-summary"], written["order-summary"])
    assert ask(stream, window=str(second * 1_000)).total == sessions


def test_rows_are_counted_by_the_values_of_a_field_now_and_in_the_past(tmp_path: Path) -> None:
    stream = WrittenStream(SHOP["customer-accounts"], tmp_path)
    tiers = {"ann": "gold", "bob": "gold", "eve": None}
    customers = [(name, 1, {"customer_id": name, "tier": tier}) for name, tier in tiers.items()]
    stream.write([as_arrivals("customers", *customers), as_arrivals("customers", ("ann", 2, None))])
    by_tier = {"sink": "customer-accounts-left", "count_by": "tier"}
    then = ask(stream, at=str(recorded_ms(0)), **by_tier)
    assert (then.total, shown(then, "tier", ROWS)) == (3, [("gold", 2), (None, 1)])
    now = ask(stream, **by_tier)
    assert (now.total, dict(shown(now, "tier", ROWS))) == (2, {"gold": 1, None: 1})


def correction(number: int, **row: Any) -> pl.DataFrame:
    told = {BACKFILL: f"night-{number}", BACKFILL_NUMBER: number, PUBLISHED_AT: recorded_ms(5) + number}
    types = {REVISION: pl.Int32, GENERATION: pl.Int32, "hourly_revenue": pl.Decimal(38, 2)}
    frame = pl.DataFrame({name: [value] for name, value in {**row, **told}.items()})
    return frame.cast({name: kind for name, kind in types.items() if name in frame.columns})


def revenue_correction(number: int, amount: str, revision: int) -> pl.DataFrame:
    return correction(
        number,
        product="mug",
        window_start=0,
        window_end=HOUR_MS,
        hourly_revenue=Decimal(amount),
        **{RESULT_TIME: 20_000, REVISION: revision, ORIGIN: "backfill"},
    )


def test_of_a_single_aggregation_the_highest_revision_counts_corrections_among_them(revenue: WrittenStream) -> None:
    revenue.correct("product_revenue", revenue_correction(0, "21.00", 1))
    revenue.correct("product_revenue", revenue_correction(1, "22.00", 2))
    seen = ("hourly_revenue", REVISION, BACKFILL_NUMBER)
    assert shown(ask(revenue, key="mug"), *seen) == [(Decimal("22.00"), 2, 1)]
    for later_ms, expected in ((-1, (Decimal("20.00"), 0, None)), (0, (Decimal("21.00"), 1, 0))):
        assert shown(ask(revenue, key="mug", at=str(recorded_ms(5) + later_ms)), *seen) == [expected]


def count_correction(number: int, user: str, orders: int | None, batch: int) -> pl.DataFrame:
    is_null = orders is None
    of_row = {"user_id": user, "orders": orders, RESULT_TIME: 1_000, REVISION: 9, IS_NULL: is_null, ORIGIN: None}
    return correction(number, **of_row, **{GENERATION: 0, BATCH: batch}).cast({ORIGIN: pl.String, "orders": pl.Int64})


def test_a_correction_takes_the_place_of_all_rows_of_its_record(copied: Copied) -> None:
    stream = copied("high-value-orders")
    rows = pl.scan_delta(stream.tables.output("high_value_orders")).filter(pl.col(ORIGIN) == "orders-0@0").collect()
    told = {BACKFILL: pl.lit("night-0"), BACKFILL_NUMBER: pl.lit(0, pl.Int64), PUBLISHED_AT: pl.lit(1, pl.Int64)}
    changed = {"amount": pl.lit(Decimal("300.00")).cast(rows.schema["amount"]), REVISION: pl.col(REVISION) + 1}
    stream.correct("high_value_orders", rows.with_columns(**told, **changed))
    found = ask(stream, sink="high-value-orders", key="o1")
    both = [("orders-0@0", Decimal("300.00")), ("orders-0@2", Decimal("200.00"))]
    assert sorted(shown(found, ORIGIN, "amount")) == both


def test_an_answer_says_whether_audits_have_judged_its_batch_and_each_row(revenue: WrittenStream) -> None:
    assert ask(revenue).document["audit"] is None
    revenue.audit(0, outcome="violation")
    found = ask(revenue, key="tea")
    assert (found.document["audit"]["audited"], found.document["audit"]["outcome"]) == (False, "violation")
    assert shown(found, BATCH, AUDITED) == [(1, False), (0, True)]
    assert ask(revenue, at=str(recorded_ms(0))).document["audit"]["audited"] is True
    revenue.audit(1)
    said = ask(revenue).document["audit"]
    assert (said["audited"], said["audit"], said["batch"], said["outcome"]) == (True, "night-1", 1, "match")


def test_an_audit_of_batches_that_a_restored_stream_has_not_says_nothing_of_those_it_has(
    revenue: WrittenStream,
) -> None:
    """The tables of the stream are of Monday, those of its audits of Thursday: no audit has judged what came since."""
    revenue.audit(0)
    revenue.audit(7)
    found = ask(revenue, key="tea")
    assert (found.document["audit"]["audited"], found.document["audit"]["audit"]) == (False, "night-0")
    assert shown(found, BATCH, AUDITED) == [(1, False), (0, True)]


def test_a_correction_is_audited_once_an_audit_has_seen_its_backfill_published(counts: WrittenStream) -> None:
    for backfills, audited in ((0, False), (1, True)):
        counts.audit(1, finished_ms=backfills, tables={"order_counts": {"backfills": backfills}})
        if not backfills:
            counts.correct(counts.topology.written[0].table, count_correction(0, "bob", 3, 1))
        corrected = [row for row in ask(counts).rows if row[BACKFILL_NUMBER] is not None]
        assert [row[AUDITED] for row in corrected] == [audited]


def test_an_answer_says_since_when_rows_are_kept(revenue: WrittenStream) -> None:
    released = {"before_ms": 5_000, "cut": [0, 0], "offsets": {}}
    revenue.audit(0, released=released)
    assert ask(revenue).kept_since_ms is None
    revenue.audit(1)
    assert ask(revenue).kept_since_ms == 5_000


def test_a_file_that_is_gone_is_worth_another_try(revenue: WrittenStream) -> None:
    for file in Path(revenue.tables.output("product_revenue")).glob("*.parquet"):
        file.unlink()
    with pytest.raises(Transient, match="product-revenue could not be read"):
        ask(revenue)


def test_every_sink_of_the_shop_can_be_asked_and_must_be_named_where_a_stream_has_several() -> None:
    with pytest.raises(Terminal) as refused:
        asked_sink(SHOP["high-value-orders"], None)
    assert refused.value.expected == "one of high-value-orders, vip-orders"
    assert asked_sink(SHOP["order-counts"], None).name == "order-counts"
    sinks = [AskedSink(topology, written) for topology in SHOP.values() for written in topology.written]
    assert all(sink.key in sink.fields and sink.identity for sink in sinks)


@pytest.fixture
def ordered(tmp_path: Path) -> WrittenStream:
    """Users who order again and again."""
    ordered = WrittenStream(SHOP["order-counts"], tmp_path)
    cuts = [[order("ann", 1), order("bob", 2)], [order("ann", 3), order("eve", 4)], [order("bob", 5)]]
    ordered.write([as_arrivals("orders", *cut) for cut in cuts])
    return ordered


@pytest.mark.parametrize("reader", ["Polars", "DuckDB"])
def test_a_snippet_reads_what_an_answer_says(ordered: WrittenStream, reader: str) -> None:
    for batch in range(3):
        answered = sorted(shown(ask(ordered, at=str(recorded_ms(batch))), "user_id", "orders"))
        assert rows_of(reader, data=ordered.tables.root, generation=0, batch=batch) == answered != []


def test_corrections_are_read_as_the_page_says(ordered: WrittenStream) -> None:
    for number, (user, orders, batch) in enumerate([("ann", 7, 1), ("bob", 8, 1), ("eve", None, 2)]):
        ordered.correct("order_counts", count_correction(number, user, orders, batch))
    connection = duckdb.connect()
    for name, path in (("outputs", ordered.tables.output), ("corrections", ordered.tables.corrections)):
        connection.register(name, DeltaTable(path("order_counts")).to_pyarrow_dataset())
    found: list[Any] = connection.execute(snippet("Rows that backfills have corrected", "sql")).fetchall()
    assert sorted(found) == sorted(shown(ask(ordered), "user_id", "orders")) == [("ann", 7), ("bob", 2)]


def test_the_page_names_the_columns_of_an_output_table(ordered: WrittenStream) -> None:
    page = (Path(__file__).parents[3] / "docs" / "tables.md").read_text()
    columns = pl.read_delta(ordered.tables.output("order_counts")).columns
    assert [name for name in columns if name.startswith("recount_") and f"`{name}`" not in page] == []
