"""The names of columns of records on their way through the engine; see also ``recount.core.own_columns``."""

from __future__ import annotations

TIMESTAMP, STREAM_TIME = "timestamp_ms", "stream_time_ms"
"""Event time of a record; the largest event time of a partition so far."""
