"""Numbers of things, as people read them."""

from __future__ import annotations


def quantity(number: int, one: str, many: str | None = None) -> str:
    """``number`` with its noun, ``one`` where it is 1, else ``many``; without ``many``, an s is added.

    >>> quantity(1, "record"), quantity(1200, "record"), quantity(0, "miss", "misses"), quantity(2, "late record")
    ('1 record', '1,200 records', '0 misses', '2 late records')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"
