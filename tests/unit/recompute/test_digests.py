"""The digest of a log or a table follows from its rows alone, and from every one of them (issue 12, 4)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.whole_topic import whole_topic

from recount.declare.aggregates import Aggregate, Fold, fold, reduce
from recount.declare.operators.nodes import Source
from recount.declare.operators.processing import KeyState
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.recompute.decoding import DecodePass
from recount.recompute.digests import RowsDigest
from recount.recompute.operators.log_aggregates import estimated, folded, folded_in_session
from recount.recompute.operators.log_processing import LONGEST_CHAIN, Made, Memory, Raised, Turn, processed, winning
from recount.reference.record_aggregates import results, sketched
from recount.reference.records import Record
from recount.runtime.errors import Terminal

HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
SCHEMA = pa.schema(
    {
        "offset": pa.int64(),
        "timestamp_ms": pa.int64(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": HEADERS,
        "amount": pa.decimal128(15, 2),
        "is_null": pa.bool_(),
        "share": pa.float64(),
    }
)


def record(offset: int, **change: Any) -> dict[str, Any]:
    row = {"offset": offset, "timestamp_ms": offset * 10, "key": None, "value": b"v%d" % offset, "headers": None}
    return {**row, "amount": None, "is_null": False, "share": 0.5, **change}


ROWS = [
    record(0),
    record(1, key=b"", value=None),
    record(3, key=b"EU", headers=[{"key": "a", "value": b"1"}, {"key": "b", "value": None}]),
    record(4, amount=Decimal("1.50"), share=None),
    record(9, headers=[], is_null=None),
    record(10, key=b"US", headers=[{"key": "", "value": b""}]),
]


def table(rows: Sequence[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)


def digest(*batches: pa.Table) -> str:
    made = RowsDigest()
    for batch in batches:
        made.update(batch)
    return made.digest().sha256


@pytest.mark.parametrize("cuts", [[1], [2], [3], [4], [5], [1, 2, 3, 4, 5], [2, 2, 4]])
def test_it_does_not_depend_on_where_batches_are_cut(cuts: list[int]) -> None:
    whole = table(ROWS)
    bounds = [0, *cuts, len(ROWS)]
    pieces = [whole.slice(start, end - start) for start, end in pairwise(bounds)]
    assert digest(*pieces) == digest(whole)
    copies = [table(ROWS[start:end]) for start, end in pairwise(bounds)]
    assert digest(*copies) == digest(whole)


@pytest.mark.parametrize(
    "changed",
    [
        [*ROWS[1:], ROWS[0]],
        ROWS[:-1],
        [*ROWS, record(11)],
        [*ROWS[:-1], ROWS[-1], ROWS[-1]],
        [record(0, timestamp_ms=1), *ROWS[1:]],
        [record(0, value=b"v"), *ROWS[1:]],
        [record(0, value=None), *ROWS[1:]],
        [record(0, key=b""), *ROWS[1:]],
        [record(0, value=b"v0v"), record(1, key=b"", value=b""), *ROWS[2:]],
        [record(0, headers=[]), *ROWS[1:]],
        [*ROWS[:2], record(3, key=b"EU", headers=[{"key": "a", "value": b"1"}, {"key": "b", "value": b""}]), *ROWS[3:]],
        [
            *ROWS[:2],
            record(3, key=b"EU", headers=[{"key": "b", "value": b"1"}, {"key": "a", "value": None}]),
            *ROWS[3:],
        ],
        [record(0, amount=Decimal("0.00")), *ROWS[1:]],
        [record(0, amount=Decimal("0.01")), *ROWS[1:]],
        [record(0, is_null=True), *ROWS[1:]],
        [record(0, share=0.25), *ROWS[1:]],
    ],
)
def test_it_is_another_one_for_every_change_of_a_row_or_of_their_order(changed: list[dict[str, Any]]) -> None:
    assert digest(table(changed)) != digest(table(ROWS))


def test_bytes_that_move_from_one_column_or_row_to_the_next_change_it() -> None:
    one, other = table([record(0, key=b"ab", value=b"c")]), table([record(0, key=b"a", value=b"bc")])
    assert digest(one) != digest(other)
    assert digest(table([record(0, value=b"ab"), record(1, value=b"c")])) != digest(
        table([record(0, value=b"a"), record(1, value=b"bc")])
    )


def test_a_column_of_nulls_that_is_added_later_changes_nothing() -> None:
    wider = table(ROWS).append_column("later", pa.nulls(len(ROWS), pa.string()))
    assert digest(wider) == digest(table(ROWS))


def test_how_arrow_lays_out_texts_and_integers_changes_nothing() -> None:
    narrow = table(ROWS)
    wide = narrow.cast(pa.schema(SCHEMA).set(2, pa.field("key", pa.large_binary())))
    assert digest(wide) == digest(narrow)
    numbers = pa.table({"n": pa.array([1, None, 3], pa.int32())})
    assert digest(numbers) == digest(numbers.cast(pa.schema({"n": pa.int64()})))


def test_no_rows_have_a_digest() -> None:
    assert digest() == digest(table([]))
    assert digest() != digest(table(ROWS[:1]))


SOURCE = Source(topic=Topic(name="clicks", key="user", value=RecordSchema.of(n=LONG, m=LONG, w=STRING)))


def decoded(since: dict[str, dict[int, int]], *batches: list[int], partition: int = 1) -> list[tuple[object, ...]]:
    """Offset, ``m``, ``w`` and reason of records all of which have a text ``w``, and ``m`` a text at odd offsets."""
    flow = whole_topic(source=SOURCE, needs_record_key=False)
    decode = DecodePass(flow=flow, limits={}, read_since=since)
    rows = [
        pa.RecordBatch.from_pylist(
            [
                {
                    "partition": partition,
                    "offset": offset,
                    "timestamp_ms": 0,
                    "key": b"ada",
                    "value": json.dumps({"n": 1, "m": "text" if offset % 2 else offset, "w": "w"}).encode(),
                }
                for offset in offsets
            ],
            schema=pa.schema(
                {
                    "partition": pa.int32(),
                    "offset": pa.int64(),
                    "timestamp_ms": pa.int64(),
                    "key": pa.binary(),
                    "value": pa.binary(),
                }
            ),
        )
        for offsets in batches
    ]
    made = [row for batch in decode(iter(rows)) for row in batch.to_pylist()]
    return [(row["offset"], row["m"], row["w"], row["reason"]) for row in made]


@pytest.mark.parametrize("batches", [([3, 4, 5, 6],), ([3], [4, 5], [6]), ([3, 4], [5, 6])])
def test_before_it_was_read_a_field_is_null_and_any_value_of_it_is_good(batches: tuple[list[int], ...]) -> None:
    found = decoded({"m": {1: 5, 0: 1}}, *batches)
    assert found == [(3, None, "w", None), (4, None, "w", None), (5, None, None, "schema"), (6, 6, "w", None)]


def test_each_of_several_fields_is_read_from_its_own_offset() -> None:
    found = decoded({"m": {1: 4}, "w": {1: 6}}, [2, 3, 4, 6, 8])
    assert found == [
        (2, None, None, None),
        (3, None, None, None),
        (4, 4, None, None),
        (6, 6, "w", None),
        (8, 8, "w", None),
    ]


def test_a_partition_that_came_after_the_upgrade_was_read_with_the_field_from_its_first_record() -> None:
    assert decoded({"m": {0: 9}}, [0, 1]) == [(0, 0, "w", None), (1, None, None, "schema")]


TEXT = fold("n", initial=lambda: "0", adder="{}+{}".format, merger="({}&{})".format, returns=STRING)
CHAIN = reduce("n", "({}.{})".format)
timed = st.lists(st.tuples(st.integers(0, 30), st.sampled_from([None, "a", "b", "c"])), max_size=10)


def by_the_interpreter(aggregate: Aggregate, records: Iterable[tuple[int, Any]], gap_ms: int | None) -> Any:
    made = [
        Record(row={"n": value}, timestamp_ms=at, order=("log", 0, offset), entry=None)
        for offset, (at, value) in enumerate(records)
    ]
    return results({"it": aggregate}, made, gap_ms)["it"]


def fold_of(aggregate: Aggregate) -> Fold:
    assert aggregate.fold is not None
    return aggregate.fold


@pytest.mark.parametrize("aggregate", [TEXT, CHAIN], ids=["fold", "reduce"])
@given(records=timed)
def test_a_fold_takes_the_values_in_order(aggregate: Aggregate, records: list[tuple[int, Any]]) -> None:
    found = folded(fold_of(aggregate), [value for _, value in records])
    assert found == by_the_interpreter(aggregate, records, None)


@pytest.mark.parametrize("aggregate", [TEXT, CHAIN], ids=["fold", "reduce"])
@given(records=timed)
def test_a_fold_over_a_session_merges_as_the_session_did(aggregate: Aggregate, records: list[tuple[int, Any]]) -> None:
    assert folded_in_session(fold_of(aggregate), records, 5) == by_the_interpreter(aggregate, records, 5)


@pytest.mark.parametrize("size", [0, 1, 1_023, 1_024, 5_000])
def test_the_estimate_is_that_of_the_specification(size: int) -> None:
    assert estimated(range(size)) == sketched(range(size))
    assert abs(estimated(range(size)) - size) <= 0.1 * size


@pytest.mark.parametrize(("second", "wins"), [(9, False), (10, False), (11, True)])
def test_a_duplicate_is_at_most_the_horizon_away(second: int, wins: bool) -> None:
    for by_offset in (True, False):
        assert winning([(0, (0,)), (second, (1,))], horizon_ms=10, by_offset=by_offset) == [True, wins]


def test_the_first_is_that_of_the_offsets_or_that_of_the_event_times() -> None:
    records = [(5, (0,)), (0, (1,))]
    assert winning(records, horizon_ms=10, by_offset=True) == [True, False]
    assert winning(records, horizon_ms=10, by_offset=False) == [False, True]


def test_a_duplicate_does_not_prolong_the_horizon() -> None:
    assert winning([(0, (0,)), (10, (1,)), (11, (2,))], horizon_ms=10, by_offset=True) == [True, False, True]


def test_timers_go_off_before_the_record_that_finds_their_time_reached_and_at_the_end() -> None:
    """Each record asks for a timer 5 later; the partition had reached 4, then 5, before the second and third."""

    def on_record(row: Any, state: KeyState) -> Any:
        state.schedule(row["at"] + 5)
        return [{"said": f"record {row['at']}"}]

    def on_timer(at_ms: int, state: KeyState) -> Any:
        return [{"said": f"timer {at_ms} at {state.timestamp_ms}"}]

    turns = [Turn({"at": at}, at, reached) for at, reached in ((0, None), (1, 4), (2, 5))]
    made = processed(Memory(key="k"), turns, on_record, on_timer, end_ms=6)
    found = [one.row["said"] for one in made if isinstance(one, Made)]
    assert found == ["record 0", "record 1", "timer 5 at 5", "record 2", "timer 6 at 6"]


def _left_by(on_record: Any, on_timer: Any = None) -> list[Any]:
    turns = [Turn({"at": at, "items": [at]}, at, at - 1) for at in (1, 2, 3)]
    return list(processed(Memory(key="k"), turns, on_record, on_timer, end_ms=9))


@pytest.mark.parametrize("at", [0.5, float("inf"), None, True, -1, 2**63])
def test_a_timer_that_is_no_time_raises_for_its_record_however_it_is_set(at: Any) -> None:
    def asked(_row: Any, state: KeyState) -> Any:
        state.schedule(at)
        return []

    def unasked(_row: Any, state: KeyState) -> Any:
        state.timers_ms.add(at)
        return []

    for function in (asked, unasked):
        raised = [type(one.error).__name__ for one in _left_by(function) if isinstance(one, Raised)]
        assert raised == ["ValueError" if at in (-1, 2**63) else "TypeError"] * 3


def test_a_key_whose_timers_have_no_end_is_refused_at_the_timer_that_is_one_too_many() -> None:
    def asked(_row: Any, state: KeyState) -> Any:
        state.schedule(state.timestamp_ms)
        state.fired = LONGEST_CHAIN - 3
        return []

    def again(at_ms: int, state: KeyState) -> Any:
        if at_ms < last_ms:
            state.schedule(at_ms + 1)
        return [{"said": at_ms}]

    last_ms = 3
    assert [one.row["said"] for one in _left_by(asked, again) if isinstance(one, Made)] == [1, 2, 3]
    last_ms = 6
    with pytest.raises(Terminal) as refused:
        _left_by(asked, again)
    assert "the timer at 6 ms" in str(refused.value.given)


@pytest.mark.parametrize("what", [{7: 1}, (1, 2), {1}, Decimal("1.5"), float("nan")])
def test_what_is_remembered_and_no_json_is_refused(what: Any) -> None:
    def remembering(_row: Any, state: KeyState) -> Any:
        state.remembered["what"] = what
        return []

    [first, *_] = [one.error for one in _left_by(remembering) if isinstance(one, Raised)]
    assert isinstance(first, Terminal)


def test_rows_and_states_are_their_own_whatever_the_function_goes_on_changing() -> None:
    def changing(row: Any, state: KeyState) -> Any:
        """Takes its row apart, and raises for 2: what it made of the others must not be lost."""
        seen = state.remembered.setdefault("seen", [])
        seen.extend(row["items"])
        row["items"].clear()
        if row.pop("at") == 2:
            raise ValueError("two")
        return [{"said": seen}]

    assert [one.row["said"] for one in _left_by(changing) if isinstance(one, Made)] == [[1], [1, 3]]
