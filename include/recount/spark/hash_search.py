"""Rows found by a hash of some of their columns, with a binary search in sorted hashes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import xor

import polars as pl


def hash_of(columns: Sequence[str]) -> pl.Expr:
    """One number for the values of ``columns``, null or not; equal values have equal ones, others seldom."""
    return reduce(xor, (pl.col(name).hash(seed) for seed, name in enumerate(columns)))


def places_of(wanted: pl.Series, hashes: pl.Series) -> pl.Series:
    """Where in the sorted ``hashes`` those ``wanted`` are; sorted needles find the processor's cache warm."""
    needles = wanted.unique().sort()
    first, end = hashes.search_sorted(needles, "left"), hashes.search_sorted(needles, "right")
    return pl.select(pl.int_ranges(first, end)).to_series().explode().drop_nulls()
