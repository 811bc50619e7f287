"""How often Python looks for objects that hold each other."""

from __future__ import annotations

import gc

_NEW_OBJECTS = 100_000


def look_seldom() -> None:
    """Look for cycles after every 100,000 new objects of this process instead of 700.

    A batch makes a million objects, and the packages that a job imports half a million; few of them are in a cycle. To
    look at all of them again and again took a third of the processor time of sliding windows, and a sixth of importing.
    """
    gc.set_threshold(_NEW_OBJECTS)
