"""Below which operators time settles, and below which a row can be replaced however old it is."""

from __future__ import annotations

import pytest
from tests.unit.engine.operators.feeding import LEFT

from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table, stream, table
from recount.declare.windows import Windows, session, sliding, tumbling
from recount.engine.operators.windowed_state import comes_any_time, is_revised_any_time

WORDS = stream(LEFT).select_key(k=col("word"))
TUMBLING = tumbling("10 ms", grace="0 ms")


def counted(rows: RecordStream, windows: Windows = TUMBLING) -> RecordStream:
    return rows.windowed_by(windows).aggregate(n=count()).emit_final()


@pytest.mark.parametrize(
    ("flow", "comes"),
    [
        (table(LEFT).emit_after("9 ms"), False),
        (stream(LEFT).filter(col("l") > 0).to_table().emit_after("9 ms"), False),
        (WORDS.to_table().emit_after("9 ms"), True),
        (WORDS.windowed_by(TUMBLING).aggregate(n=count()).emit_after("9 ms"), False),
        (WORDS.to_table(), False),
    ],
    ids=["own key", "own key, filtered", "another key", "windows", "not held"],
)
def test_an_update_that_is_held_can_be_of_any_time_where_its_key_is_in_several_partitions(
    flow: RecordStream | Table, comes: bool
) -> None:
    assert comes_any_time(flow.node) is comes


@pytest.mark.parametrize(
    ("flow", "is_revised"),
    [
        (WORDS, False),
        (counted(WORDS), False),
        (counted(WORDS, sliding("10 ms", grace="0 ms")), False),
        (counted(WORDS, session("10 ms", grace="0 ms")), False),
        (counted(counted(WORDS, session("10 ms", grace="0 ms"))), False),
        (WORDS.aggregate(n=count()).to_stream(), True),
    ],
    ids=["records", "tumbling", "sliding", "sessions", "windows over sessions", "totals"],
)
def test_results_of_windows_that_close_are_revised_until_they_settle_and_totals_at_any_time(
    flow: RecordStream, is_revised: bool
) -> None:
    assert is_revised_any_time(flow.node) is is_revised
