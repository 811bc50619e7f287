"""Times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def told_time(at_ms: int) -> str:
    """``at_ms`` as date and time of day, UTC; as the number where no calendar has it: whoever can write to a topic of
    results can name any window."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{at_ms:,} ms"
