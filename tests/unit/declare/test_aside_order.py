"""An order to set a record aside names one record, holds by its SHA-256, and is no word for another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recount.runtime.errors import Terminal
from recount.tables.signed_orders import AsideOrder, RecordPlace, set_aside_command

ORDER = AsideOrder(
    stream="sums", version=1, topic="a.b-c", partition=3, offset=17, at_ms=5, by="ann", because="a test"
).hashed(None)


def test_a_place_is_read_as_it_is_written() -> None:
    assert RecordPlace.from_text("a.b-c-3@17") == ORDER.place
    assert set_aside_command("sums", ORDER.place) == "`recount set-aside sums a.b-c-3@17 --by NAME --because TEXT`"


@pytest.mark.parametrize(
    "text", ["", "orders", "orders-0", "orders@5", "orders-0@", "orders-0@-1", "a derived row: o-0@1"]
)
def test_what_names_no_record_is_refused(text: str) -> None:
    with pytest.raises(Terminal) as refused:
        RecordPlace.from_text(text)
    assert refused.value.given == text


def test_a_changed_order_does_not_hold() -> None:
    assert ORDER.holds
    assert AsideOrder.from_json(ORDER.to_json()) == ORDER
    for changed in (replace(ORDER, offset=18), replace(ORDER, by="bob"), replace(ORDER, version=2)):
        assert not changed.holds


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stream": 1}', ORDER.to_json().replace("17", '"17"')])
def test_what_is_no_order_is_terminal(text: str) -> None:
    with pytest.raises(Terminal):
        AsideOrder.from_json(text)
