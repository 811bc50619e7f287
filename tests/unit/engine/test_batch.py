"""The error of a stream that stopped at a record says how it goes on without, if it can."""

from __future__ import annotations

import pytest

from recount.engine.commit.batch import without_its_record
from recount.engine.source.checkpoint import BatchRange
from recount.runtime.errors import OfARecord

ONE = BatchRange(
    batch=7, timestamp_ms=0, start={("orders", 0): 5, ("more", 1): 2}, end={("orders", 0): 9, ("more", 1): 2}
)
BY = "--by NAME --because TEXT`"
WITHOUT_THIS = "to go on without this record: `recount set-aside sums"
WITHOUT_ONE = "to go on without a record of this batch, orders-0@[5, 9): `recount set-aside sums"
TOO_LATE = "so that no record can be set aside: mend the declaration"


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("orders-0@5", f"{WITHOUT_THIS} orders-0@5 {BY}"),
        ("orders-0@8", f"{WITHOUT_THIS} orders-0@8 {BY}"),
        ("orders-0@4", f"an earlier batch has read orders-0@4, {TOO_LATE}"),
        ("orders-0@9", f"an earlier batch has read orders-0@9, {TOO_LATE}"),
        ("orders-0@4+orders-0@6", f"{WITHOUT_THIS} orders-0@6 {BY}"),
        (None, f"{WITHOUT_ONE} TOPIC-PARTITION@OFFSET {BY}"),
    ],
)
def test_the_remedy_names_the_command_for_a_record_that_no_batch_has_read(record: str | None, said: str) -> None:
    error = OfARecord("a sum is too large", remedy="filter it")
    error.record = record
    with pytest.raises(OfARecord) as raised, without_its_record("sums", ONE):
        raise error
    assert raised.value.remedy == f"filter it; {said}"
