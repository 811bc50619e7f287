from __future__ import annotations

import polars as pl
import pytest
from bench.written import Written

RESULTS = pl.DataFrame({"partition": [0, 0, 1], "key": [b"EU", b"EU", b"US"], "value": [b"1", b"2", b"3"]})
TRUTH = Written(parts={"results": RESULTS, "late": pl.DataFrame({"offset": [7]})})


def test_a_stream_that_wrote_the_same_differs_in_nothing() -> None:
    assert TRUTH.differences(Written(parts={**TRUTH.parts, "results": RESULTS.clone()})) == []


@pytest.mark.parametrize(
    "other",
    [
        RESULTS.head(2),
        pl.concat([RESULTS, RESULTS.tail(1)]),
        RESULTS.reverse(),
        RESULTS.with_columns(value=pl.lit(b"1")),
    ],
    ids=["lost", "doubled", "in another order", "altered"],
)
def test_a_record_lost_doubled_moved_or_altered_is_a_difference(other: pl.DataFrame) -> None:
    found = Written(parts={**TRUTH.parts, "results": other})
    assert TRUTH.differences(found) == [f"results: 3 against {other.height}"]
