"""What tells a process from a later one with the same pid, whatever the clock of the machine does."""

from __future__ import annotations

from pathlib import Path

_PROC = Path("/proc")
_START_TICKS = 19
"""Where the start time stands in ``/proc/<pid>/stat``, counted from the field after the name (field 3 of proc(5))."""


def identity_of(pid: int) -> str | None:
    """The boot of the machine and the clock ticks until ``pid`` started; None when there is no such process.

    Neither changes when the clock is set. The start as a time of day does: Linux derives it from the clock.
    """
    try:
        said = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the name stands in brackets, and may contain blanks and brackets itself
    ticks = said.rpartition(")")[2].split()[_START_TICKS]
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{ticks}"
