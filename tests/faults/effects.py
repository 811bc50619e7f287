"""Every external effect of a process, seen: what it writes with, wrapped before the package is imported.

An effect has a name that is the same for every stream of a kind (``delta append streams/*/late``). At a chosen one
something happens: mostly a death. Once a process counts as dead, nothing that it tries passes any more.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Happening = Callable[[], None]


_AUDIT = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}")
"""The name of an audit, which is another one each time."""
_VERSION = re.compile(r"(?<=former/\*/)\d+(?=/)")
"""The version of a stream whose tables were moved away: each reset of a chain has another one."""


class Killed(BaseException):
    """The death of a driver that shares its process with the next one: no code of ours catches it."""


@dataclass(frozen=True, order=True)
class Point:
    """After the ``nth`` effect of this ``name`` in a run, counted from 1."""

    name: str
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.name} ({self.nth})" if self.nth > 1 else self.name


def points(effects: Sequence[str]) -> list[Point]:
    """The points of a run that had these ``effects``, in order."""
    seen: Counter[str] = Counter()
    found = []
    for name in effects:
        seen[name] += 1
        found.append(Point(name, seen[name]))
    return found


class Effects:
    """The effects of one run after the other below ``root``; several threads may have some at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._dying: list[Happening] = []
        self.root = Path("/nonexistent")
        self.transaction_timeout_ms: int | None = None
        self.begin(())

    def begin(self, hidden: Sequence[str], at: Point | None = None, then: Happening | None = None) -> None:
        """A new run, in whose names the texts ``hidden`` become ``*``; ``then`` happens at the point ``at``."""
        self._hidden = sorted(hidden, key=len, reverse=True)
        self._at, self._then = at, then
        self._counts: Counter[str] = Counter()
        self._dying.clear()
        self.seen: list[str] = []
        self.is_dead = False

    @property
    def is_watched(self) -> bool:
        """Whether something is to happen in this run."""
        return self._at is not None

    def at_death(self, what: Happening) -> None:
        """Something that ends with the process: records that a producer has not sent."""
        self._dying.append(what)

    def die(self) -> None:
        """The whole process counts as dead from now on."""
        with self._lock:
            self.is_dead = True
        for what in self._dying:
            what()
        self._dying.clear()
        raise Killed

    def require_alive(self) -> None:
        """Before an effect: raises ``Killed`` in whatever thread of a dead process tries it."""
        if self.is_dead:
            raise Killed

    def happened(self, name: str) -> None:
        """After an effect."""
        for text in self._hidden:
            name = name.replace(text, "*")
        name = _VERSION.sub("*", _AUDIT.sub("*", name))
        with self._lock:
            self._counts[name] += 1
            self.seen.append(name)
            is_it = self._at is not None and self._at == Point(name, self._counts[name])
        if is_it and self._then is not None:
            self._then()

    def place(self, path: object) -> str | None:
        """``path`` below the root; None outside of it."""
        text = str(path).removeprefix("file://")
        return text.removeprefix(f"{self.root}/") if text.startswith(f"{self.root}/") else None
