"""The names of the columns that the engine's tables share."""

from __future__ import annotations

TIMESTAMP, STREAM_TIME = "timestamp_ms", "stream_time_ms"
"""Event time, of a result the largest behind it; the largest event time of a partition so far."""
REVISION = "revision"
"""How often the result of a key and window was written before."""
IS_NULL = "is_null"
"""Whether the value is null: a table's row is deleted."""
ORIGIN = "origin"
"""Which records of the log a result was made of, where it is no window's."""
