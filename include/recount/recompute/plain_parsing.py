"""Plain values to Arrow columns: the meaning of ``rules.plain_texts``, for many values at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from recount.core.plain_values import PlainValue
from recount.recompute.columns import spark_type
from recount.recompute.parsing import Parsed
from recount.recompute.rules.json_values import Bad
from recount.recompute.rules.plain_texts import scalar_of


class PlainParser:
    """Parses the values of one topic."""

    def __init__(self, declared: PlainValue) -> None:
        self._name, self._kind = declared.name, declared.kind

    def parsed(self, values: Sequence[bytes | None]) -> Parsed:
        """All of ``values``; one that is None is no bad one."""
        cells: list[Any] = [None] * len(values)
        bad = {}
        for index, value in enumerate(values):
            try:
                cells[index] = None if value is None else scalar_of(value, self._kind)
            except Bad as fault:
                bad[index] = fault.reason, fault.detail
        return Parsed({self._name: pa.array(cells, to_arrow_type(spark_type(self._kind)))}, bad)
