"""Numbers as people read them."""

from __future__ import annotations

import math

SECONDS_A_DAY = 86_400
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def counted(number: float) -> str:
    """``1234.5`` is ``1,234``, below 10 with two digits: ``0.0233`` is ``0.023``."""
    if math.isinf(number):
        return "as many as records"
    return f"{number:.2g}" if number < 10 else f"{number:,.0f}"


def sized(size: float) -> str:
    """Bytes in the largest unit of which there is one: ``1536`` is ``1.5 KiB``."""
    unit = min(int(math.log2(size) // 10), len(_UNITS) - 1) if size >= 1 else 0
    return f"{size:,.0f} B" if unit == 0 else f"{size / 1024**unit:,.1f} {_UNITS[unit]}"
