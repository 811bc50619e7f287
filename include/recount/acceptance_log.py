"""Who has accepted which finding: the table ``acceptances/<stream>``; without Spark."""

from __future__ import annotations

import polars as pl
from deltalake import DeltaTable

from recount.core.finding import Acceptance
from recount.core.tables import Tables


def acceptances(tables: Tables, stream: str) -> list[Acceptance]:
    """All acceptances of ``stream``."""
    path = tables.acceptances(stream)
    if not DeltaTable.is_deltatable(path):
        return []
    return [Acceptance(**row) for row in pl.scan_delta(path).collect().to_dicts()]
