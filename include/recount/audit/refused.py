"""The line by which an audit of several streams says why it has not judged one of them, written and read again."""

from __future__ import annotations

import re

_FINAL = re.compile(r"(\S+): not audited, and no retry can help: (.*)")


def not_audited(stream: str, why: str, *, final: bool) -> str:
    """The line; ``final`` where a human must act."""
    return f"{stream}: not audited{', and no retry can help' if final else ''}: {why}"


def refused_in(line: str) -> tuple[str, str] | None:
    """The stream that a final refusal names, and why; None in every other line."""
    found = _FINAL.fullmatch(line.strip())
    return (found[1], found[2]) if found else None
