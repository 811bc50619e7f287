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

    A row is hashed as its values in text, and what is hashed in the end are the sorted hashes of rows. In memory are
    the rows of one audit, and 32 bytes for each of the others.
    """
    whole = hashlib.sha256()
    for name in (PARTIALS, PUBLISHED):
        path = tables.audit(stream, name)
        if not DeltaTable.is_deltatable(path):
            continue
        columns = sorted(pl.scan_delta(path).collect_schema().names())
        digests: list[bytes] = []
        for audit in lineage:
            rows = pl.scan_delta(path).filter(pl.col(AUDIT) == audit)
            texts = rows.select(pl.struct(columns).struct.json_encode()).collect().to_series()
            digests += (hashlib.sha256(text.encode()).digest() for text in texts)
        whole.update(f"{name} {','.join(columns)} {len(digests)}\n".encode())
        for digest in sorted(digests):
            whole.update(digest)
    return whole.hexdigest()
