"""Streams that are declared no longer and that somebody should look after: drivers that run, findings that are open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from recount.core.registry import Declarations
from recount.kafka.held_leases import is_heard, undeclared
from recount.kafka.status import StreamStatus
from recount.web.issued import Issued, certificates


@dataclass(frozen=True, kw_only=True)
class LeftBehind:
    """One of them. ``status`` None: no driver is at work; ``certificate`` None: no finding is open."""

    name: str
    status: StreamStatus | None
    certificate: Issued | None
    runs: bool


def left_behind(
    reports: str, statuses: Mapping[str, StreamStatus], declarations: Declarations, now_ms: int
) -> list[LeftBehind]:
    """By name; a stream of which the driver has ended and no finding is open is none."""
    drivers = {status.stream: status for status in undeclared(statuses, declarations)}
    findings = dict(_open_findings(reports, declarations))
    return [
        LeftBehind(
            name=name,
            status=drivers.get(name),
            certificate=findings.get(name),
            runs=name in drivers and is_heard(drivers[name], now_ms),
        )
        for name in sorted({*drivers, *findings})
    ]


def _open_findings(reports: str, declarations: Declarations) -> list[tuple[str, Issued]]:
    """The newest certificates of streams without a declaration, where a finding was open."""
    root = Path(reports) / "certificates"
    names = [folder.name for folder in root.iterdir() if folder.is_dir()] if root.is_dir() else []
    newest = [(name, certificates(reports, name, 1)) for name in names if name not in declarations.streams]
    return [(name, found[0]) for name, found in newest if found and found[0].open_findings]
