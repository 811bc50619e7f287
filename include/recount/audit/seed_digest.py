"""What tells the partials and publications that the audits of a single aggregation go on from, from any others."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import polars as pl
from deltalake import DeltaTable

from recount.audit.store import PARTIALS, PUBLISHED
from recount.core.own_columns import AUDIT
from recount.core.tables import Tables


def seed_sha256(tables: Tables, stream: str, lineage: Sequence[str]) -> str:
    """The SHA-256 of these rows of the audits ``lineage``, whatever their order and files.

    A row is hashed as its values in text, and what is hashed in the end are the sorted hashes of rows.
    """
    whole = hashlib.sha256()
    for name in (PARTIALS, PUBLISHED):
        path = tables.audit(stream, name)
        if not DeltaTable.is_deltatable(path):
            continue
        rows = pl.scan_delta(path).filter(pl.col(AUDIT).is_in(list(lineage)))
        columns = sorted(rows.collect_schema().names())
        texts = rows.select(pl.struct(columns).struct.json_encode()).collect(engine="streaming").to_series()
        whole.update(f"{name} {','.join(columns)} {texts.len()}\n".encode())
        for digest in sorted(hashlib.sha256(text.encode()).digest() for text in texts):
            whole.update(digest)
    return whole.hexdigest()
