"""The record of an erasure names a key by a salted hash, and is one text that can be hashed and signed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recount.runtime.errors import Terminal
from recount.tables.signed_orders import Erasure, key_sha256, new_salt

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


def test_a_record_knows_its_key_and_does_not_say_it() -> None:
    assert BEGUN.is_of("zoe")
    assert not BEGUN.is_of("zo")
    assert "zoe" not in BEGUN.to_json()
    assert key_sha256(new_salt(), "zoe") != BEGUN.key_sha256


def test_a_record_comes_back_from_its_text_and_holds() -> None:
    assert Erasure.from_json(BEGUN.to_json()) == BEGUN
    assert BEGUN.holds


@pytest.mark.parametrize(
    "change",
    [{"by": "Bob"}, {"batch": 4}, {"state": "done"}, {"counts": {}}, {"key_id": None}, {"snapshot_after": "0"}],
)
def test_a_record_that_was_changed_does_not_hold(change: dict[str, object]) -> None:
    assert not replace(BEGUN, **change).holds  # type: ignore[arg-type]


def test_what_is_signed_is_of_this_stream_erasure_and_content() -> None:
    others = [replace(BEGUN, stream="notes"), replace(BEGUN, erasure="bills-2"), replace(BEGUN, sha256="0" * 64)]
    assert len({BEGUN.signed, *(one.signed for one in others)}) == 4


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"erasure": "x"}', "{"])
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(Terminal, match="no record"):
        Erasure.from_json(text)
