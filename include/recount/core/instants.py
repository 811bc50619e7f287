"""Times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def told_time(at_ms: int) -> str:
    """``at_ms`` as date and time of day, UTC.

    As the number where no calendar has it: whoever can write to a topic of results can name any window.

    >>> told_time(1_500), told_time(2**63 - 1)
    ('1970-01-01 00:00:01.500', '9,223,372,036,854,775,807 ms')
    """
    try:
        told = datetime.fromtimestamp(at_ms // 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        return f"{told}.{at_ms % 1_000:03}" if at_ms % 1_000 else told
    except (ValueError, OverflowError, OSError):
        return f"{at_ms:,} ms"
