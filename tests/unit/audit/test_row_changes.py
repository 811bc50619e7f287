"""Of two texts of a row people read the fields that differ, with times as times."""

from __future__ import annotations

import json

import pytest

from recount.audit.certificate.summary import change_in_words, late_in_words, sides_in_words

HOUR_MS = 3_600_000


def test_of_a_result_of_a_window_only_the_fields_that_differ_are_said() -> None:
    """As the auditor of single aggregations writes results."""
    old = '{"orders":5,"revenue":10.50,"largest":9,"recount_timestamp_ms":1000}'
    new = '{"orders":6,"revenue":20.75,"largest":9,"recount_timestamp_ms":61000}'
    assert change_in_words(old, new) == (
        "orders 5 → 6, revenue 10.50 → 20.75, time 1970-01-01 00:00:01 → 1970-01-01 00:01:01"
    )


def test_of_a_row_of_any_topology_too_and_a_field_that_is_null_is_none() -> None:
    """As the auditor of any topology writes rows, without the fields that are null."""
    old = json.dumps({"row": {"store": "A1", "window_end": HOUR_MS, "sales": 2}, "timestamp_ms": 5})
    new = json.dumps({"row": {"store": "A1", "window_end": 2 * HOUR_MS, "sales": 2, "tier": "gold"}, "timestamp_ms": 5})
    assert change_in_words(old, new) == "window_end 1970-01-01 01:00:00 → 1970-01-01 02:00:00, tier none → gold"


@pytest.mark.parametrize("nothing", [None, "deleted"])
def test_a_row_that_is_not_there_is_said_to_be_none(nothing: str | None) -> None:
    row = '{"row":{"n":1,"who":"ada"},"timestamp_ms":0}'
    assert change_in_words(nothing, row) == "no row → n 1, who ada, time 1970-01-01 00:00:00"
    assert change_in_words(row, nothing) == "n 1, who ada, time 1970-01-01 00:00:00 → no row"


def test_what_is_no_row_stays_as_it_is() -> None:
    assert change_in_words("5 records", "{") == "5 records → {"
    assert sides_in_words("[1]", '{"n":1}') == ("[1]", '{"n":1}')
    assert sides_in_words('{"n":1}', '{"n":1}') == ('{"n":1}', '{"n":1}'), "a duplicate differs in no field"


def test_an_expected_and_an_actual_row_are_said_by_what_differs() -> None:
    assert sides_in_words('{"n":1,"m":2,"k":3}', '{"n":4,"m":2}') == ("n 1, k 3", "n 4")
    assert sides_in_words(None, '{"n":4}') == (None, "n 4")
    assert sides_in_words("1363564800000 ms", "269663 ms") == ("2013-03-18 00:00:00", "4 min 29 s"), "of no rows"


def test_the_margin_of_a_late_record_is_said_in_words() -> None:
    assert late_in_words("orders-0@7 +269663 ms") == "orders-0@7 +4 min 29 s"
    assert late_in_words("zones-0@1 read after orders-0@7") == "zones-0@1 read after orders-0@7"
