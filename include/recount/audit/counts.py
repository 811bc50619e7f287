"""How many rows have which verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from recount.audit.completeness import COMPLETENESS
from recount.audit.fidelity import PLACES

_COLUMNS = (*(f"{place}_verdict" for place in PLACES), COMPLETENESS)


def verdict_counts(judged: pl.DataFrame) -> Counter[str]:
    """The rows of ``judged`` by verdict: ``kafka match``, ``delta lost``, ``completeness missed``."""
    return _by_verdict(judged.group_by(_COLUMNS).agg(pl.len().alias("n")).to_dicts())


def verdict_counts_by_spark(judged: DataFrame) -> dict[str, int]:
    """The same of Spark's rows."""
    rows = judged.groupBy(*_COLUMNS).agg(F.count("*").alias("n")).collect()
    return dict(_by_verdict(row.asDict() for row in rows))


def _by_verdict(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row in rows:
        for column in _COLUMNS:
            counts[f"{column.removesuffix('_verdict')} {row[column]}"] += row["n"]
    return counts
