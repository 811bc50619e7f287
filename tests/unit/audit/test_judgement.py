"""Results are merged, judged copy by copy without Spark, and explained by what the stream's state holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from math import inf, nan
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake
from pyspark.sql import Row as SparkRow
from tests.unit.audit.documents import a_run

from recount.audit.carry.store import NOTHING, PARTIALS, PUBLISHED, VERDICTS, AuditStore, Seed
from recount.audit.compare import single_judge
from recount.audit.compare.published import copy_schema
from recount.audit.compare.results import KEY_TEXT, WindowTotal, merged, result_of, same_result, series_of, text_of
from recount.audit.compare.single_judge import Judge, Judgement, Row, Stretch
from recount.audit.explain.causes import BatchShare, cause_of
from recount.audit.explain.completeness import unexplained
from recount.declare.aggregates import count, largest, smallest, total
from recount.declare.columns import (
    BACKFILL,
    BATCH,
    EVIDENCE,
    GENERATION,
    IS_LATE,
    ORIGIN,
    PLACE,
    RECORDS,
    RESULT_TIME,
    REVISION,
)
from recount.declare.expressions import col
from recount.declare.schema import DOUBLE, LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.recompute.single_flow import Flow
from recount.tables.places import Tables

ORDERS = Topic(name="orders", key="id", value=RecordSchema.of(region=STRING, amount=decimal(9, 2)))
OUT = Topic(name="revenue", key="region", retention_ms=-1)
CUT, LATER_BATCH = (0, 1), (0, 2)
SUM = pl.Decimal(38, 2)
Copy = dict[str, Any]


def a_flow(**aggregates: Any) -> Flow:
    grouped = stream(ORDERS).select_key(region=col("region")).windowed_by(tumbling("10 s", grace="3 s"))
    made = aggregates or {"orders": count(), "revenue": total("amount")}
    return Flow.of(
        Topology(name="revenue", sinks=[grouped.aggregate(**made).emit_each_batch().to(OUT, table="revenue")])
    )


def result(region: str | None = "EU", start: int | None = 0, orders: int = 2, revenue: str = "3.50") -> Copy:
    end = None if start is None else start + 10_000
    window = {"window_start": start, "window_end": end}
    return {"region": region, **window, "orders": orders, "revenue": Decimal(revenue), RESULT_TIME: 9_000}


def published(copy: Copy, revision: int = 0, origin: str = "stream", offset: int = 0) -> Copy:
    return {**copy, PLACE: "kafka", ORIGIN: origin, REVISION: revision, EVIDENCE: f"revenue-0@{offset}"}


def stored(copy: Copy, revision: int = 0, order: tuple[int, int] = CUT) -> Copy:
    return {**copy, REVISION: revision, GENERATION: order[0], BATCH: order[1]}


class Tried:
    """An audit's tables, and what is judged of them."""

    def __init__(self, folder: Path) -> None:
        self.tables = Tables(str(folder))
        self.flow = a_flow()
        self.store = AuditStore(None, self.tables, "revenue")  # type: ignore[arg-type]  # no Spark takes part
        late = {"topic": "", "partition": 0, "offset": 0, "margin_ms": 0, GENERATION: 0, BATCH: 0, **window("")}
        write_deltalake(self.tables.late("revenue"), pl.DataFrame([late]).clear())

    def judged(
        self,
        results: Sequence[Copy],
        on_kafka: Sequence[Copy],
        in_delta: Sequence[Copy],
        *,
        late: Sequence[Copy] = (),
        seed: Seed = NOTHING,
        audit: str = "tonight",
        again: tuple[Row, ...] = (),
        is_whole: bool = False,
    ) -> Judgement:
        """The judgement where the log makes ``results``, and ``late`` more with unlimited grace."""
        parts = [{**one, IS_LATE: False, RECORDS: 1} for one in results]
        parts += [{**one, IS_LATE: True, RECORDS: 1} for one in late]
        types = {
            "region": pl.String,
            **dict.fromkeys(("window_start", "window_end", "orders"), pl.Int64),
            "revenue": SUM,
        }
        partial = {**types, RESULT_TIME: pl.Int64, IS_LATE: pl.Boolean, RECORDS: pl.Int64}
        self.store.put_rows(PARTIALS, audit, pl.DataFrame(parts, schema=partial))
        copies = pl.DataFrame(copy_schema(self.flow).empty_table()).schema
        self.store.put_rows(PUBLISHED, audit, pl.DataFrame(list(on_kafka), schema=copies))
        rows = {**types, RESULT_TIME: pl.Int64, REVISION: pl.Int32, GENERATION: pl.Int64, BATCH: pl.Int64}
        write_deltalake(self.tables.output("revenue"), pl.DataFrame(list(in_delta), schema=rows), mode="overwrite")
        stretch = Stretch(audit=audit, seed=seed, cut=CUT, frontier_ms=None, again=again, is_whole=is_whole)
        return Judge(self.tables, self.store, self.flow).judge(stretch)


def window(key: str) -> Copy:
    return {"key": key, "window_start": 0, "window_end": 10_000}


@pytest.fixture
def tried(tmp_path: Path) -> Tried:
    return Tried(tmp_path)


R = result()
OTHER = result(orders=3)
CASES: list[tuple[list[Copy], list[Copy], str, str]] = [
    ([published(R)], [stored(R)], "match", "match"),
    ([], [stored(R)], "lost", "match"),
    ([published(R)], [], "match", "lost"),
    ([published(R), published(R)], [stored(R)], "duplicated", "match"),
    ([published(OTHER)], [stored(R)], "altered", "match"),
    ([published(OTHER), published(R)], [stored(R)], "altered", "match"),
    ([published(R, revision=-1)], [stored(R)], "extra", "match"),
    ([published(OTHER), published(R, revision=1)], [stored(R, 1)], "match", "lost"),
    ([published(OTHER), published(R, 1)], [stored(OTHER), stored(R, 1)], "match", "match"),
    ([published(R)], [stored(OTHER), stored(R, 1)], "lost", "match"),
    ([published(R), published(R, 1)], [stored(R)], "extra", "match"),
    ([published(R), published(OTHER, 1)], [stored(R), stored(OTHER, 1, LATER_BATCH)], "match", "match"),
]
"""What is on Kafka and in Delta of ``R``, and the verdicts."""


@pytest.mark.parametrize(("on_kafka", "in_delta", "kafka", "delta"), CASES)
def test_every_result_is_there_once_per_revision_in_both_places(
    tried: Tried, on_kafka: list[Copy], in_delta: list[Copy], kafka: str, delta: str
) -> None:
    found = tried.judged([R], on_kafka, in_delta)
    assert found.counts == {f"kafka {kafka}": 1, f"delta {delta}": 1, "completeness kept": 1}
    assert len(found.wrong) == (0 if kafka == delta == "match" else 1)


def test_what_nobody_makes_is_extra_even_if_it_names_no_window_or_no_batch_and_a_null_key_is_a_key(
    tried: Tried,
) -> None:
    nothing = result(region=None, start=None)
    found = tried.judged([R], [published(R), published(nothing, offset=7)], [stored(R), stored(result(start=10_000))])
    assert found.counts["kafka extra"] == found.counts["delta extra"] == 1
    assert [row["kafka_evidence"] for row in found.wrong] == [["revenue-0@7"], None]
    nowhere = {**stored(OTHER, 1), GENERATION: None, BATCH: None}
    [row] = tried.judged([R], [published(R)], [stored(R), nowhere]).wrong
    assert "outputs/revenue batch ?/?" in row["delta_evidence"]
    mine = result(region=None)
    assert tried.judged([mine], [published(mine)], [stored(mine)]).counts["kafka match"] == 1


def test_a_late_record_is_missed_until_both_places_have_the_correction(tried: Tried) -> None:
    late = result(orders=1, revenue="1.00")
    complete = result(orders=3, revenue="4.50")
    found = tried.judged([R], [published(R)], [stored(R)], late=[late])
    [miss] = found.misses
    assert (miss.late_records, miss.explained) == (1, False)
    assert miss.complete == '{"orders":3,"revenue":4.50,"recount_timestamp_ms":9000}'
    listed = {"topic": "orders", "partition": 1, "offset": 5, "margin_ms": 40, GENERATION: 0, BATCH: 1}
    write_deltalake(tried.tables.late("revenue"), pl.DataFrame([{**listed, **window("EU")}]), mode="append")
    [miss] = tried.judged([R], [published(R)], [stored(R)], late=[late]).misses
    assert (miss.explained, miss.late) == (True, ("orders-1@5 +40 ms",))

    corrected = [published(R), published(complete, 1, "backfill")]
    half = tried.judged([R], corrected, [stored(R)], late=[late])
    assert [one.verdict for one in half.corrections] == ["extra"]
    row = {**complete, REVISION: 1, BACKFILL: "b"}
    whole = pl.DataFrame([row], schema_overrides={"revenue": SUM, REVISION: pl.Int32})
    write_deltalake(tried.tables.corrections("revenue"), whole)
    found = tried.judged([R], corrected, [stored(R)], late=[late])
    assert (found.counts["completeness repaired"], found.misses, found.corrections) == (1, [], [])


def test_a_correction_that_is_not_what_the_whole_log_gives_is_missed_and_unexplained_without_a_late_record(
    tried: Tried,
) -> None:
    forged = result(orders=99, revenue="99.00")
    row = pl.DataFrame([{**forged, REVISION: 1, BACKFILL: "b"}], schema_overrides={"revenue": SUM, REVISION: pl.Int32})
    write_deltalake(tried.tables.corrections("revenue"), row)
    found = tried.judged([R], [published(R), published(forged, 1, "backfill")], [stored(R)])
    [miss] = found.misses
    assert (miss.late_records, miss.explained) == (0, False)
    assert [one.verdict for one in unexplained(found.misses)] == ["unexplained"]

    after_all = tried.judged([R], [published(R), published(R, 1, "backfill")], [stored(R)])
    assert [one.verdict for one in after_all.corrections] == ["altered"]


def test_the_parts_together_say_what_one_part_says(tried: Tried, monkeypatch: pytest.MonkeyPatch) -> None:
    results = [result(region, start) for region in ("EU", "US", None) for start in range(0, 200_000, 10_000)]
    given = (results, [published(one) for one in results[:-1]], [stored(one) for one in results])
    whole = tried.judged(*given)
    verdicts = tried.store.rows(VERDICTS, ["tonight"]).collect().sort(pl.all())
    monkeypatch.setattr(single_judge, "RESULTS_AT_ONCE", 7)
    parts = tried.judged(*given)
    assert parts == whole
    assert whole.counts["kafka lost"] == 1
    assert [total.expected for total in whole.series] == [6] * 20
    assert tried.store.rows(VERDICTS, ["tonight"]).collect().sort(pl.all()).equals(verdicts)


def seed_of(audit: str) -> Seed:
    """Where ``audit``, of batch 0, ended."""
    return Seed(run=a_run(audit, batch=0), stream_times={})


def test_a_second_night_judges_what_was_touched_since(tried: Tried) -> None:
    before, late = result(), result(start=10_000)
    tried.judged([before, late], [published(before), published(late)], [stored(before), stored(late)], audit="first")
    more = result(start=10_000, orders=1, revenue="1.00")
    sum_of_both = result(start=10_000, orders=3, revenue="4.50")
    rows = [stored(before, order=(0, 0)), stored(late, order=(0, 0)), stored(sum_of_both, 1)]
    found = tried.judged([more], [published(sum_of_both, 1)], rows, seed=seed_of("first"))
    assert found.counts == {"kafka match": 1, "delta match": 1, "completeness kept": 1}


@pytest.mark.parametrize("region", ["EU", None])
def test_a_second_night_judges_the_rows_of_findings_again_though_nothing_touched_them(
    tried: Tried, region: str | None
) -> None:
    removed, other = result(region), result(start=20_000)
    tried.judged([removed, other], [published(removed), published(other)], [stored(other)], audit="first")
    rows = [stored(other, order=(0, 0))]
    untouched = tried.judged([], [], rows, seed=seed_of("first"))
    assert untouched.counts == {}

    again = ((region, 0, 10_000),)
    found = tried.judged([], [], rows, seed=seed_of("first"), again=again)
    assert found.counts == {"kafka match": 1, "delta lost": 1, "completeness kept": 1}
    assert [row[KEY_TEXT] for row in found.wrong] == [region]

    put_back = [*rows, stored(removed, order=(0, 0))]
    repaired = tried.judged([], [], put_back, seed=seed_of("first"), again=again)
    assert repaired.counts == {"kafka match": 1, "delta match": 1, "completeness kept": 1}


def test_a_whole_judgement_of_a_second_night_finds_a_row_under_an_old_batch(tried: Tried) -> None:
    tried.judged([R], [published(R)], [stored(R)], audit="first")
    rows = [stored(R, order=(0, 0)), stored(OTHER, 1, order=(0, 0))]
    assert tried.judged([], [], rows, seed=seed_of("first")).counts == {}
    assert tried.judged([], [], rows, seed=seed_of("first"), is_whole=True).counts["delta altered"] == 1


def test_wrong_rows_beyond_those_that_are_followed_are_counted(tried: Tried, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_judge, "MAX_WRONG", 2)
    results = [result(start=start) for start in range(0, 50_000, 10_000)]
    found = tried.judged(results, [published(one) for one in results], [])
    assert (len(found.wrong), found.unlisted, found.counts["delta lost"]) == (2, 3, 5)


VALUE = RecordSchema.of(region=STRING, ratio=DOUBLE, pieces=LONG)
AGGREGATES = {
    "n": count(),
    "ratio": total("ratio"),
    "high": largest("ratio"),
    "low": smallest("pieces"),
    "all": total("pieces"),
}


def mixed_flow() -> Flow:
    topic = Topic(name=ORDERS.name, key="id", value=VALUE)
    grouped = stream(topic).select_key(region=col("region")).windowed_by(tumbling("10 s", grace="3 s"))
    return Flow.of(Topology(name="mixed", sinks=[grouped.aggregate(**AGGREGATES).emit_each_batch().to(OUT)]))


def partial_rows(*given: tuple[float | None, float | None, int | None, int | None]) -> pl.DataFrame:
    place = {"region": "EU", "window_start": 0, "window_end": 10_000, RESULT_TIME: 5, RECORDS: 1, "n": 1}
    types = {"ratio": pl.Float64, "high": pl.Float64, "low": pl.Int64, "all": pl.Int64}
    rows = [{**place, **dict(zip(types, one, strict=True))} for one in given]
    return pl.DataFrame(rows, schema_overrides=types)


def test_of_nothing_but_nulls_every_aggregate_but_the_count_is_null() -> None:
    [row] = merged(partial_rows((None, None, None, None), (None, None, None, None)), mixed_flow()).to_dicts()
    assert [row[name] for name in AGGREGATES] == [2, None, None, None, None]
    assert text_of({name: row[name] for name in AGGREGATES}) == '{"n":2}'
    # and nulls beside numbers are passed over
    [row] = merged(
        partial_rows((0.5, 0.5, 3, 3), (None, None, None, None), (0.25, 0.25, 1, 1)), mixed_flow()
    ).to_dicts()
    assert [row[name] for name in AGGREGATES] == [3, 0.75, 0.5, 1, 4]
    assert (row[RESULT_TIME], row[RECORDS]) == (5, 3)


def test_no_number_is_larger_than_not_a_number_and_a_sum_beyond_64_bits_is_no_other_number() -> None:
    [row] = merged(partial_rows((1.0, math.nan, 1, 1), (1.0, 2.0, 1, 1)), mixed_flow()).to_dicts()
    assert math.isnan(row["high"])
    of_two = merged(partial_rows((1.0, 1.0, 1, 2**63 - 1), (1.0, 1.0, 1, 1)), mixed_flow())
    of_three = merged(partial_rows((1.0, 1.0, 1, 2**63 - 1), (1.0, 1.0, 1, 1), (1.0, 1.0, 1, -1)), mixed_flow())
    assert of_two["all"].to_list() == [None] and of_three["all"].to_list() == [2**63 - 1]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((1.0, 1.0, 1, 1), (1.0 + 9e-10, 1.0, 1, 1), True),
        ((1.0, 1.0, 1, 1), (1.0 + 2e-9, 1.0, 1, 1), False),
        ((math.inf, math.nan, 1, 1), (math.inf, math.nan, 1, 1), True),
        ((None, 1.0, 1, 1), (None, 1.0, 1, 1), True),
        ((None, 1.0, 1, 1), (0.0, 1.0, 1, 1), False),
        ((1.0, 1.0, 10**17, 1), (1.0, 1.0, 10**17 + 1, 1), False),
    ],
)
def test_doubles_are_equal_within_a_relative_1e_9_and_all_else_exactly(
    one: tuple[float, float, int, int], other: tuple[float, float, int, int], same: bool
) -> None:
    flow = mixed_flow()
    sides = [
        partial_rows(given).select(result_of(flow).alias(name)) for given, name in ((one, "one"), (other, "other"))
    ]
    both = pl.concat(sides, how="horizontal")
    assert both.select(same_result(pl.col("one"), pl.col("other"), flow)).item() is same


def window_total(start: int, expected: float | Decimal | int) -> dict[str, float | Decimal | int]:
    return {"window_start": start, "expected": expected, "published": expected, "complete": expected}


def bar(start: int, expected: str) -> WindowTotal:
    one = Decimal(expected)
    return WindowTotal(window_start=start, expected=one, published=one, complete=one)


def test_totals_of_one_window_are_added_up_and_windows_are_in_order() -> None:
    assert series_of([window_total(60, 2), window_total(0, Decimal("1.5")), window_total(60, 3)]) == (
        bar(0, "1.5"),
        bar(60, "5"),
    )
    assert series_of([window_total(0, 0.1234567)]) == (bar(0, "0.123457"),)


@pytest.mark.parametrize("beyond", [inf, -inf, nan])
def test_a_window_whose_total_is_beyond_every_double_is_left_out(beyond: float) -> None:
    """Added to its opposite it ended the audit, and no page could be made of it."""
    assert series_of(
        [window_total(0, beyond), window_total(60, 1.5), window_total(0, -beyond), window_total(0, 1.0)]
    ) == (bar(60, "1.5"),)


WINDOWS = tumbling("5 min", grace="60 s")
EXPECTED = {"orders": 5, "revenue": Decimal("52.50"), RESULT_TIME: 240_000}
SHARE = {"orders": 2, "revenue": Decimal("21.00"), RESULT_TIME: 100_000}
REST = {"orders": 3, "revenue": Decimal("31.50"), RESULT_TIME: 240_000}


TWICE = {"orders": 7, "revenue": Decimal("73.50"), RESULT_TIME: 240_000}
CHANGED = {**EXPECTED, "orders": 6}
MOVED = "no window has these bounds: moved by {} ms from the window that starts at 1970-01-01 00:05:00"


def share(batch: int, recomputed: dict[str, Any] | None, stored: dict[str, Any] | None) -> BatchShare:
    return BatchShare(order=(0, batch), recomputed=recomputed, stored=stored, offsets=(), is_recomputed=True)


RIGHT = [share(0, SHARE, SHARE), share(1, REST, REST)]
WRONG = [RIGHT[0], share(1, REST, None), share(2, None, SHARE)]
NOBODY: dict[str, Any] = {"expected": None}


@pytest.mark.parametrize(
    ("verdict", "actual", "shares", "told", "said"),
    [
        ("altered", TWICE, RIGHT, {}, "batch 0/0 is counted twice; the stream's state is right"),
        ("altered", SHARE, RIGHT, {}, "batch 0/1 is not counted"),
        (
            "altered",
            CHANGED,
            RIGHT,
            {},
            "the stream's state is right: the value was changed on its way here or afterwards",
        ),
        ("altered", CHANGED, RIGHT, {"kafka_contradictory": True}, "contradict"),
        ("altered", CHANGED, WRONG, {}, "the stream's state differs from the log in batch 0/1, batch 0/2"),
        ("lost", None, RIGHT, {"kafka_revisions": 0}, "the stream's state is right: the result was not written"),
        ("lost", None, [share(0, SHARE, None)], {"kafka_revisions": 0}, "differs from the log in batch 0/0"),
        ("lost", EXPECTED, RIGHT, {"kafka_highest": 1}, "a revision"),
        ("extra", EXPECTED, RIGHT, {**NOBODY, "window_start": 300_001, "window_end": 600_001}, MOVED.format(1)),
        ("extra", EXPECTED, RIGHT, {**NOBODY, "window_start": 299_999, "window_end": 599_999}, MOVED.format(-1)),
        ("extra", EXPECTED, RIGHT, {**NOBODY, "kafka_lowest": -1}, "not written by this stream"),
        ("extra", EXPECTED, RIGHT, NOBODY, "no record that was on time"),
        ("extra", EXPECTED, RIGHT, {}, "other output does not have"),
        ("extra", None, RIGHT, {**NOBODY, "window_start": None, "window_end": None}, "no result of this stream"),
    ],
)
def test_a_difference_is_explained_by_what_the_stream_s_state_holds_batch_by_batch(
    verdict: str, actual: dict[str, Any] | None, shares: list[BatchShare], told: dict[str, Any], said: str
) -> None:
    columns = {
        "window_start": 0,
        "window_end": 300_000,
        "expected": SparkRow(**EXPECTED),
        "kafka_result": SparkRow(**actual) if actual else None,
        "kafka_copies": 1,
        "kafka_revisions": 1,
        **dict.fromkeys(("kafka_highest", "kafka_lowest"), 0),
        "kafka_contradictory": False,
    }
    assert said in cause_of(SparkRow(**{**columns, **told}), "kafka", verdict, WINDOWS, shares)
