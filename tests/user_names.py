"""Names that fields, keys and aggregates of a user may have although Recount has columns for the same things."""

from __future__ import annotations

USER_NAMES = (
    *("timestamp_ms", "revision", "is_null", "origin", "generation", "batch", "audit", "is_late", "records", "place"),
    *("evidence", "key", "value", "topic", "partition", "offset", "reason", "detail", "stream_time_ms", "expected"),
    *("complete", "kafka_verdict", "copies", "result", "late", "listed", "n", "p", "first", "index", "row", "at_ms"),
    "side",
)
