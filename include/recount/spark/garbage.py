"""How often Python looks for objects that hold each other."""

from __future__ import annotations

import gc

_NEW_OBJECTS = 100_000


def look_seldom() -> None:
    """Look for cycles after every 100,000 new objects instead of 700, and never among those that are there now.

    A batch makes a million objects without cycles, which go when they are used last. To look at them again and again
    took a third of the processor time of sliding windows.
    """
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
