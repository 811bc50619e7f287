"""Records of what a person did: each is one text that holds by its SHA-256, and is no word for another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recount.runtime.errors import Terminal
from recount.tables.signed_orders import AsideOrder, Erasure, RecordPlace, key_sha256, new_salt, set_aside_command

ORDER = AsideOrder(
    stream="sums", version=1, topic="a.b-c", partition=3, offset=17, at_ms=5, by="ann", because="a test"
).hashed(None)
SALT = new_salt()
BEGUN = Erasure(
    erasure="bills-1",
    stream="bills",
    state="begun",
    version=1,
    at_ms=1,
    by="Ada",
    reason="asked",
    generation=0,
    batch=3,
    audit="night-3",
    salt=SALT,
    key_sha256=key_sha256(SALT, "zoe"),
    offsets={"visits": {"0": 7}},
    counts={"outputs/bills": 2},
).hashed("k1")


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


def test_an_erasure_knows_its_key_and_does_not_say_it() -> None:
    assert BEGUN.is_of("zoe")
    assert not BEGUN.is_of("zo")
    assert "zoe" not in BEGUN.to_json()
    assert key_sha256(new_salt(), "zoe") != BEGUN.key_sha256


def test_a_record_comes_back_from_its_text_and_holds_until_it_is_changed() -> None:
    for record, changes in (
        (ORDER, [{"offset": 18}, {"by": "bob"}, {"version": 2}]),
        (BEGUN, [{"by": "Bob"}, {"batch": 4}, {"state": "done"}, {"counts": {}}, {"key_id": None}]),
        (replace(BEGUN, audit=None).hashed("k1"), [{"audit": "night-3"}, {"snapshot_after": "0"}]),
    ):
        assert type(record).from_json(record.to_json()) == record
        assert record.holds
        for change in changes:
            assert not replace(record, **change).holds  # type: ignore[arg-type]


def test_what_is_signed_is_of_this_stream_record_and_content() -> None:
    others = [replace(BEGUN, stream="notes"), replace(BEGUN, erasure="bills-2"), replace(BEGUN, sha256="0" * 64)]
    assert len({BEGUN.signed, ORDER.signed, *(one.signed for one in others)}) == 5


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", '{"stream": 1}', ORDER.to_json().replace("17", '"17"')])
def test_what_is_no_record_is_refused(text: str) -> None:
    for kind in (AsideOrder, Erasure):
        with pytest.raises(Terminal, match="no record"):
            kind.from_json(text)
