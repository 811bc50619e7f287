"""How many rows have which verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from recount.audit.completeness import COMPLETENESS
from recount.audit.fidelity import PLACES


def verdict_counts(judged: DataFrame) -> dict[str, int]:
    """The rows of ``judged`` by verdict: ``kafka match``, ``delta lost``, ``completeness missed``."""
    columns: Sequence[str] = (*(f"{place}_verdict" for place in PLACES), COMPLETENESS)
    counts: Counter[str] = Counter()
    for row in judged.groupBy(*columns).agg(F.count("*").alias("n")).collect():
        for column in columns:
            counts[f"{column.removesuffix('_verdict')} {row[column]}"] += row.n
    return dict(counts)
