"""Rows that no backfill has written are found, and those of one that was killed are not taken for them."""

from __future__ import annotations

from recount.audit.compare.correction_claims import Listed, published_names, strange_backfills


def listed(number: int | None, name: str | None, table: str = "visits", batch: int = 4) -> Listed:
    return Listed(table=table, number=number, name=name, order=(1, batch), rows=1)


def strange(found: list[Listed], done: int) -> list[tuple[str, ...]]:
    return [one.evidence for one in strange_backfills(found, done, {"monday", "tuesday"}, {(1, 4)})]


def test_backfills_that_are_published_or_wait_to_be_are_no_strangers() -> None:
    found = [listed(0, "monday"), listed(1, "monday.1", "paid"), listed(1, "monday.1"), listed(2, "tuesday")]
    assert strange(found, done=1) == []
    assert strange(found, done=3) == []
    assert published_names(found, done=2) == ("monday", "monday.1")


def test_rows_of_no_audit_of_no_number_or_of_a_number_that_does_not_follow_are_named() -> None:
    assert strange([listed(0, "sunday")], done=1) == [("backfill sunday",)]
    assert strange([listed(None, "monday")], done=1) == [("backfill monday",)]
    assert strange([listed(0, None)], done=1) == [("backfill None",)]
    assert strange([listed(0, "monday"), listed(2**63 - 1, "tuesday")], done=1) == [("backfill tuesday",)]


def test_rows_that_name_a_batch_that_the_stream_does_not_have_are_named() -> None:
    """An audit leaves corrections of later batches to the next one, so nobody would ever judge them."""
    assert strange([listed(0, "monday"), listed(0, "monday", batch=10**9)], done=1) == [("backfill monday",)]
