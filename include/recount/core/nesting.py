"""How deep a JSON value may nest: parsers stop at depths of their own, and Python's at one that its caller decides.

So the depth is counted, and a value that is nested deeper is a bad record in every implementation alike.

>>> is_too_deep(b"[" * MOST_NESTED + b"]" * MOST_NESTED)
False
>>> is_too_deep(b"[" * (MOST_NESTED + 1) + b"]" * (MOST_NESTED + 1))
True
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST_NESTED = 500
"""Objects and arrays that lie in one another; each takes two bytes."""
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)


def is_too_deep(value: bytes, most: int = MOST_NESTED) -> bool:
    """Whether more than ``most`` objects and arrays of ``value`` lie in one another; its texts do not count."""
    if len(value) <= 2 * most or value.count(b"[") + value.count(b"{") <= most:
        return False
    depth = 0
    for found in _TOKEN.finditer(value):
        match found[0]:
            case b"[" | b"{":
                depth += 1
                if depth > most:
                    return True
            case b"]" | b"}":
                depth -= 1
    return False


def has_too_deep(values: Sequence[bytes]) -> bool:
    """Whether one of ``values`` is."""
    return max(map(len, values), default=0) > 2 * MOST_NESTED and any(map(is_too_deep, values))
