"""Rejected records that name a key: their rows have none, only where the record lies and what was wrong with it."""

from __future__ import annotations

import re

import polars as pl
from deltalake import DeltaTable

from recount.core.tables import Tables

_AT_ONCE = 1_000


def count_rejected(tables: Tables, stream: str, key: str) -> int:
    """How many rows tell of ``key``."""
    return len(_naming(tables.rejected(stream), key))


def remove_rejected(tables: Tables, stream: str, key: str) -> None:
    """Delete these rows. Where a record lies and why it was rejected says nothing of a key, so other rows stay."""
    path = tables.rejected(stream)
    places = _naming(path, key)
    for start in range(0, len(places), _AT_ONCE):
        told = " OR ".join(
            f"(topic = '{topic}' AND partition = {partition} AND offset = {offset})"
            for topic, partition, offset in places[start : start + _AT_ONCE]
        )
        DeltaTable(path).delete(told)


def _naming(path: str, key: str) -> list[tuple[str, int, int]]:
    """The places of records whose detail has ``key`` as a word of its own."""
    if not key or not DeltaTable.is_deltatable(path):
        return []
    rows = pl.scan_delta(path).filter(pl.col("detail").str.contains(key, literal=True))
    found = rows.select("topic", "partition", "offset", "detail").collect().iter_rows()
    return [(topic, partition, offset) for topic, partition, offset, detail in found if named_in(detail, key)]


def named_in(text: str, key: str) -> bool:
    """Whether ``text`` has ``key`` as a word of its own."""
    return re.search(rf"(?<!\w){re.escape(key)}(?!\w)", text) is not None
