"""How the shop stands: what was produced, and what the drivers of its streams say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

from recount.core.limits import Health
from recount.kafka.status import StreamStatus

_SILENT_MS = Health().heartbeat_age_ms


@dataclass(frozen=True, kw_only=True)
class Progress:
    """``rate`` is in records a second since the line before. ``lag`` is that of ``behind``, which is furthest behind.

    ``late`` and ``dead_letters`` are those of all streams, each since its driver started: a record that is late for
    five streams counts five times.
    """

    seconds: float
    produced: int
    rate: float
    running: int
    streams: int
    behind: str | None
    lag: int
    late: int
    dead_letters: int

    @classmethod
    def of(
        cls,
        statuses: Mapping[str, StreamStatus],
        streams: Collection[str],
        *,
        now_ms: int,
        seconds: float,
        produced: int,
        rate: float,
    ) -> Self:
        """What the last ``statuses`` say of ``streams``; one whose driver has been silent does not run."""
        said = {name: statuses[name] for name in streams if name in statuses}
        running = [one for one in said.values() if one.state == "running" and now_ms - one.heartbeat_ms <= _SILENT_MS]
        behind = max(said.values(), key=lambda one: one.lag or 0, default=None)
        return cls(
            seconds=seconds,
            produced=produced,
            rate=rate,
            running=len(running),
            streams=len(streams),
            behind=behind.stream if behind and behind.lag else None,
            lag=behind.lag or 0 if behind else 0,
            late=sum(one.late_records for one in said.values()),
            dead_letters=sum(one.dead_letters for one in said.values()),
        )

    def line(self) -> str:
        """All of it in one line."""
        behind = f"lag {self.lag:,} ({self.behind})" if self.behind else "lag 0"
        return (
            f"{self.seconds:5.0f} s  produced {self.produced:,}, {self.rate:,.0f}/s  "
            f"running {self.running} of {self.streams}  {behind}  late {self.late:,}  "
            f"dead letters {self.dead_letters:,}"
        )
