"""A correction takes the place of all rows of its identity, in the bytes that the stream would have written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import types as T

from recount.audit.compare.identity import Identity, identity_of
from recount.backfill.corrections import Correction, Standing, in_order, make_table, record_of, said
from recount.declare.aggregates import count, total
from recount.declare.columns import BATCH, GENERATION, IS_NULL, ORIGIN, RESULT_TIME, REVISION
from recount.declare.expressions import col
from recount.declare.operators.nodes import KEY, WINDOW_END, WINDOW_START
from recount.declare.output import encode_value
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, RecordSchema, decimal, list_of
from recount.declare.topics import Topic
from recount.declare.topology import stream, table
from recount.declare.windows import all_time, session, tumbling
from recount.recompute.spark_columns import spark_type

ORDERS = Topic(name="orders", key="who", value=RecordSchema.of(item=STRING, amount=decimal(15, 2), rate=DOUBLE))
PAYMENTS = Topic(name="payments", key="who", value=RecordSchema.of(method=STRING))
OUT = Topic(name="out", key="who")
COMPACTED = Topic(name="out", key="who", cleanup_policy="compact")
BY_METHOD = Topic(name="out", key="method")
CUT = (2, 17)


def nothing(*_: Any) -> Iterator[dict[str, Any]]:
    return iter(())


def sink(flow: Any, topic: Topic = OUT) -> Identity:
    return identity_of(flow.to(topic))


def of_windows(windows: Any) -> Any:
    return stream(ORDERS).windowed_by(windows).aggregate(orders=count(), spent=total("amount"))


def joined() -> Any:
    return stream(ORDERS).left_join(stream(PAYMENTS), before="0 s", after="5 min", grace="1 min")


def correction(identity: Identity, complete: str, **changed: Any) -> Correction:
    told: dict[str, Any] = {
        "key": "ann",
        "window_start": None,
        "window_end": None,
        "origin": None,
        "gone_ms": 7,
        "is_open": False,
        "revision": 1,
        "now": "[]",
    }
    return Correction(identity=identity, complete=complete, **{**told, **changed})


def test_a_row_is_published_as_the_stream_would_have_written_it() -> None:
    identity = sink(joined())
    kept = '[{"row":{"__key":"ann","item":"p\\u00e9n","amount":10.50,"method":null,"rate":1.0E-7},"at_ms":5}]'
    made = correction(identity, kept, origin="orders-0@3+payments-1@4")
    [row] = made.rows(CUT)
    assert (row["amount"], row[RESULT_TIME], row[GENERATION], row[BATCH]) == (Decimal("10.50"), 5, *CUT)
    record = record_of(row, identity.written, version=1)
    values = {"item": "pén", "amount": Decimal("10.50"), "rate": 1e-7, "method": None}
    assert record.value == encode_value({name: values[name] for name in identity.written.fields if name != KEY})
    assert (record.key, record.timestamp_ms) == (b"ann", 5)
    assert dict(record.headers) == {
        "recount-revision": b"1",
        "recount-origin": b"backfill",
        "recount-source": b"orders-0@3+payments-1@4",
    }


def test_a_decimal_has_all_its_places_and_no_exponent_however_it_was_read() -> None:
    small = Topic(name="small", key="who", value=RecordSchema.of(amount=decimal(15, 8)))
    flow = stream(small).windowed_by(tumbling("10 s", grace="0 s")).aggregate(spent=total("amount")).emit_final()
    identity = sink(flow, Topic(name="out", key="who"))
    for kept in ("4E-8", "0.00000004"):  # an earlier release has kept the first
        text = f'[{{"row":{{"__key":"ann","window_start":0,"window_end":10000,"spent":{kept}}},"at_ms":5}}]'
        made = correction(identity, text, window_start=0, window_end=10_000)
        [row] = made.rows(CUT)
        by_spark = {**row, "spent": Decimal("4.0E-8")}  # as a row of Spark has it: one place too many
        assert said([by_spark], identity) == said([row], identity)
        record = record_of(by_spark, identity.written, version=1)
        assert record.value == b'{"window_start":0,"window_end":10000,"spent":0.00000004}'
    assert record_of({**row, "spent": Decimal("0E-9")}, identity.written, version=1).value == (
        b'{"window_start":0,"window_end":10000,"spent":0.00000000}'
    )


def test_where_the_whole_log_makes_no_row_one_deletion_says_whose_it_is() -> None:
    session_gone = correction(
        sink(of_windows(session("3 min", grace="0 s")).emit_final()), "[]", window_start=1, window_end=2
    )
    [row] = session_gone.rows(CUT)
    assert (row[IS_NULL], row[WINDOW_START], row[WINDOW_END], row[RESULT_TIME], row["orders"]) == (True, 1, 2, 7, None)
    record = record_of(row, session_gone.identity.written, version=2)
    assert (record.key, record.value, record.timestamp_ms) == (b"ann", None, 7)
    assert dict(record.headers)["recount-window"] == b"1/2"


def test_a_deletion_of_a_row_under_a_number_has_the_number_as_its_key() -> None:
    numbered = Topic(name="numbered", key="n")
    identity = sink(stream(ORDERS).with_fields(n=1).select_key(n=col("n")), numbered)
    [row] = correction(identity, "[]", key="12", origin="orders-0@3").rows(CUT)
    assert (row["n"], row[ORIGIN]) == (12, "orders-0@3")
    assert identity.written.fields["n"] == LONG


def test_a_row_that_no_record_names_has_no_source_header() -> None:
    identity = sink(stream(ORDERS).process(nothing, on_timer=nothing, said=STRING))
    [row] = correction(identity, '[{"row":{"__key":"ann","said":"hi"},"at_ms":9}]', origin="at 9").rows(CUT)
    assert row[ORIGIN] is None


def test_a_record_that_makes_several_rows_has_them_all_corrected_together() -> None:
    kept = '[{"row":{"__key":"ann","item":"a","amount":1.00,"rate":null},"at_ms":5},{"row":null,"at_ms":6}]'
    rows = correction(sink(stream(ORDERS)), kept, origin="orders-0@3").rows(CUT)
    assert [(row["item"], row[IS_NULL], row[REVISION]) for row in rows] == [("a", False, 1), (None, True, 1)]


def test_deletions_are_published_before_the_rows_that_take_their_place() -> None:
    identity = sink(of_windows(session("3 min", grace="0 s")).emit_final())
    merged = '[{"row":{"__key":"ann","window_start":1,"window_end":6,"orders":3,"spent":3.00},"at_ms":6}]'
    rows = correction(identity, merged, window_start=1, window_end=6).rows(CUT)
    rows += correction(identity, "[]", window_start=6, window_end=6, gone_ms=6).rows(CUT)
    assert [row[WINDOW_START] for row in in_order(rows, identity.written)] == [6, 1]


def test_what_two_backfills_say_of_a_row_is_compared_to_the_last_digit() -> None:
    identity = sink(stream(ORDERS))
    kept = '[{"row":{"__key":"ann","item":"a","amount":1.00,"rate":0.30000000000000004},"at_ms":5}]'
    one = correction(identity, kept).rows(CUT)
    assert said(one, identity) == said(correction(identity, kept, revision=9).rows((0, 0)), identity)
    assert said(one, identity) != said(correction(identity, kept.replace("004}", "}")).rows(CUT), identity)
    assert said(one, identity) != said([*one, *one], identity)


@pytest.mark.parametrize(
    ("flow", "topic", "is_open", "standing"),
    [
        (of_windows(tumbling("5 min", grace="0 s")).emit_final(), OUT, False, "ready"),
        (of_windows(tumbling("5 min", grace="0 s")).emit_each_batch(), OUT, False, "ready"),
        (of_windows(tumbling("5 min", grace="0 s")).emit_each_batch(), OUT, True, "open"),
        (of_windows(tumbling("5 min", grace="0 s")).emit_final(), COMPACTED, False, "compacted"),
        (joined(), OUT, False, "ready"),
        (joined(), COMPACTED, False, "compacted"),
        (of_windows(all_time()).emit_each_batch(), OUT, True, "keyed"),
        (table(PAYMENTS), COMPACTED, True, "keyed"),
        (table(PAYMENTS).group_by(method=col("method")).aggregate(n=count()), BY_METHOD, True, "keyed"),
    ],
)
def test_what_the_stream_may_write_again_waits_or_is_refused(
    flow: Any, topic: Topic, is_open: bool, standing: Standing
) -> None:
    assert correction(sink(flow, topic), "[]", is_open=is_open).standing == standing


@pytest.mark.parametrize("name", ["amount", "net weight", "sum(a, b)", "x=y;{z}", "weight.kg", "größe"])
def test_a_table_is_made_with_columns_of_any_name_and_kind_once(tmp_path: Path, name: str) -> None:
    kinds = [STRING, LONG, DOUBLE, BOOLEAN, decimal(15, 2), list_of(STRING)]
    fields = [
        T.StructField(f"{name}{number}", spark_type(kind), nullable=number > 0) for number, kind in enumerate(kinds)
    ]
    for _ in range(2):
        make_table(str(tmp_path / "table"), T.StructType(fields))
    table = DeltaTable(tmp_path / "table")
    assert T.StructType.fromJson(json.loads(table.schema().to_json())) == T.StructType(
        [T.StructField(one.name, one.dataType) for one in fields]
    )
    assert table.version() == 0
