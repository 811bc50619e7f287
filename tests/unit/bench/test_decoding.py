"""The benchmark of decoders compares what is the same: in each format the records have the same rows."""

from __future__ import annotations

from typing import Any

from bench.decoding import formats


def test_all_formats_are_decoded_to_the_same_rows_by_stream_and_audit() -> None:
    decoded = [decode(one.values) for one in formats(40) for decode in (one.by_stream, one.by_audit)]
    found: list[dict[str, list[Any]]] = [
        {name: column.to_pylist() for name, column in columns.items()} for columns in decoded
    ]
    assert len(found) == 6
    assert all(one == found[0] for one in found)
    assert len(found[0]["customer"]) == 40
    assert None not in found[0]["amount"]
    assert {None, "a note of some words"} == set(found[0]["note"])
