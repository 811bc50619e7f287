"""Pairs of rows of one key whose times are near each other, found by a search and not by trying all rows of the key."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from recount.spark.columns import TIMESTAMP

_KEY, _CODE, _ROW, _PLACE = "__key", "__code", "__row", "__place"


def rows_within(
    left: pl.DataFrame,
    right: pl.DataFrame,
    *,
    keys: tuple[str, str],
    before_ms: int,
    after_ms: int,
    places: int = 2**62,
) -> tuple[pl.Series, pl.Series]:
    """The pairs ``l``, ``r`` of one key with ``l.ts - before_ms <= r.ts <= l.ts + after_ms``, as row numbers.

    Memory follows the rows and the pairs, however many rows a key has. Null keys meet nothing. Each side becomes one
    list of places ``code of its key * span + time``, where ``span`` is so wide that the interval of a left row ends
    before the next key's places begin; a binary search finds the right places of each interval.
    """
    found = list(_found(left, right, keys, before_ms, after_ms, places))
    rows = [np.concatenate(side) for side in zip(*found, strict=True)] or [np.empty(0, np.int64)] * 2
    return pl.Series(rows[0], dtype=pl.Int64), pl.Series(rows[1], dtype=pl.Int64)


def _found(
    left: pl.DataFrame, right: pl.DataFrame, keys: tuple[str, str], before_ms: int, after_ms: int, places: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    sides = [
        rows.select(pl.col(key).alias(_KEY), TIMESTAMP).with_row_index(_ROW)
        for rows, key in zip((left, right), keys, strict=True)
    ]
    codes = min(sides, key=lambda side: side.height).select(_KEY).drop_nulls().unique().with_row_index(_CODE)
    coded = [side.join(codes, on=_KEY, how="inner") for side in sides]
    if any(side.is_empty() for side in coded):
        return
    times = pl.concat([side[TIMESTAMP] for side in coded])
    first_ms = _integer(times.min()) - before_ms
    span = _integer(times.max()) + after_ms - first_ms + 1
    at_once = max(places // span, 1)
    for code in range(0, codes.height, at_once):
        some = [side.filter(pl.col(_CODE).is_between(code, code + at_once, closed="left")) for side in coded]
        place = (pl.col(_CODE).cast(pl.Int64) - code) * span + (pl.col(TIMESTAMP) - first_ms)
        placed, searched = (side.select(_ROW, place.alias(_PLACE)).sort(_PLACE) for side in some)
        begin = searched[_PLACE].search_sorted(placed[_PLACE] - before_ms, "left").to_numpy().astype(np.int64)
        end = searched[_PLACE].search_sorted(placed[_PLACE] + after_ms, "right").to_numpy().astype(np.int64)
        met = end - begin
        stop = met.cumsum()
        there = np.arange(met.sum()) + (begin - stop + met).repeat(met)
        yield placed[_ROW].to_numpy().repeat(met), searched[_ROW].to_numpy()[there]


def _integer(value: object) -> int:
    assert isinstance(value, int)
    return value
