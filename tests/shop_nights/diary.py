"""What was seen in each night, in a file that the next run goes on with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

MAX_GROWTH = 1.3
CONTROL_NIGHTS = 5


@dataclass(frozen=True, kw_only=True)
class Lie:
    """Somebody has changed the row of ``key`` in an output table before the audits of ``night``.

    It is undone after the night that follows; ``found`` says for both of these nights whether the audit named it.
    """

    night: int
    stream: str
    table: str
    key: str
    kind: str
    found: Sequence[bool] = ()

    @property
    def last_night(self) -> int:
        """The night after which it is undone."""
        return self.night + 1


@dataclass(frozen=True, kw_only=True)
class Night:
    """One night: outcome and open grace misses by stream, what it cost, and what somebody did."""

    number: int
    outcomes: Mapping[str, str]
    misses: Mapping[str, int]
    fault: str
    corrections: int
    run_s: float
    audit_s: float
    audit_cpu_s: float
    bytes: Mapping[str, int]

    def line(self) -> str:
        """What is printed of it."""
        red = sorted(name for name, outcome in self.outcomes.items() if outcome != "match")
        return (
            f"night {self.number}: {len(self.outcomes)} audits in {self.audit_s:.0f} s, {self.audit_cpu_s:.0f} of CPU, "
            f"streams {self.run_s:.0f} s, {sum(self.bytes.values()) / 2**20:.0f} MiB, {self.fault}, "
            f"{self.corrections} corrections, not a match: {red or 'none'}"
        )


@dataclass
class Diary:
    """All nights so far and all lies."""

    path: Path
    planned: int
    nights: list[Night] = field(default_factory=list)
    lies: list[Lie] = field(default_factory=list)
    produced: int = 0
    """So many nights have their records: one that was ended in the middle goes on without producing them again."""
    control: Sequence[float] = ()
    """CPU of the audits of the first nights in another folder, on the machine as it was after the last night."""

    @classmethod
    def in_folder(cls, folder: Path, planned: int) -> Diary:
        """The one that an earlier run has left there, or a new one."""
        path = folder / "diary.json"
        if not path.exists():
            return cls(path, planned)
        told = json.loads(path.read_text())
        nights = [Night(**one) for one in told["nights"]]
        return cls(path, planned, nights, [Lie(**one) for one in told["lies"]], told["produced"])

    def write(self, night: Night) -> None:
        """Add a night that is complete."""
        self.nights.append(night)
        self._save()

    def note_produced(self, nights: int) -> None:
        """The records of so many nights are on Kafka."""
        self.produced = nights
        self._save()

    def _save(self) -> None:
        told = {
            "nights": [asdict(one) for one in self.nights],
            "lies": [asdict(one) for one in self.lies],
            "produced": self.produced,
        }
        self.path.write_text(json.dumps(told, indent=1))

    @property
    def audits(self) -> int:
        return sum(len(night.outcomes) for night in self.nights)

    @property
    def growth(self) -> float | None:
        """CPU of the audits of the last three nights, by that of the three from the third on; None: too few nights."""
        costs = [night.audit_cpu_s for night in self.nights]
        return None if len(costs) < 10 else median(costs[-3:]) / median((self.control or costs)[2:CONTROL_NIGHTS])

    def is_lied_about(self, stream: str, night: int) -> bool:
        """Whether an audit of the stream must be red in this night."""
        return any(one.stream == stream and one.night <= night <= one.last_night for one in self.lies)

    def wrong(self) -> list[str]:
        """Audits that are red without a lie, or green with one, lies that were not named, and nights that cost more."""
        found = [
            f"night {night.number}: {stream}: {outcome}"
            for night in self.nights
            for stream, outcome in night.outcomes.items()
            if outcome != ("violation" if self.is_lied_about(stream, night.number) else "match")
        ]
        if self.growth is not None and self.growth > MAX_GROWTH:
            found.append(f"the last audits cost {self.growth:.2f} times the first")
        return found + [
            f"night {lie.night + after}: {lie.stream}: not named: {lie.kind}, {lie.table}, {lie.key}"
            for lie in self.lies
            for after, was_named in enumerate(lie.found)
            if not was_named
        ]
