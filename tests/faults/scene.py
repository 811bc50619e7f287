"""One stream with its topics and its tables, round by round; and the undisturbed one with which it is compared."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.hosts import Host, Job, Outcome
from tests.faults.parts import PARTS, Part
from tests.faults.remains import Remains, remains
from tests.integration.engine.purchases import create_topics, produce

from recount.declare.registry import Stream
from recount.kafka.connection import Connection


@dataclass
class Scene:
    """The stream ``name`` of a part, below the folder ``root``; nothing else is there."""

    part: str
    name: str
    root: Path
    connection: Connection
    round: int = -1

    @property
    def kind(self) -> Part:
        return PARTS[self.part]

    @property
    def declared(self) -> Stream:
        return self.kind.declared(self.name, max(self.round, 0))

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def data(self) -> Path:
        return self.root / "data"

    def create(self) -> None:
        """Its topics, and its folder."""
        self.root.mkdir(parents=True, exist_ok=True)
        create_topics(self.connection, [self.kind.topics_as(self.name)])

    def next_round(self) -> None:
        """Produce the records of the next round."""
        self.round += 1
        produce(self.connection, self.kind.records(self.name, self.round))

    def keep_backup(self) -> None:
        """Keep a copy of the tables as they are before the next round."""
        if self.data.exists():
            shutil.copytree(self.data, self._backup(self.round + 1))

    def backup(self, rounds_ago: int) -> Path | None:
        """The tables as they were so many rounds before this one began; None where there were none."""
        kept = self._backup(self.round - rounds_ago)
        return kept if kept.exists() else None

    def _backup(self, round_: int) -> Path:
        return self.root / "backups" / str(round_)

    def job(self, step: str | None = None, **more: Any) -> Job:
        """The ``step`` of this round, by default the one that is struck."""
        return Job(
            part=self.part,
            name=self.name,
            root=str(self.root),
            step=step or self.kind.step,
            round=self.round,
            **more,
        )

    def remains(self) -> Remains:
        return remains(self.connection, self.name, self.declared, str(self.root))

    def do(self, host: Host, steps: Sequence[str]) -> list[Outcome]:
        """The ``steps`` of this round, undisturbed; an error here is no finding but a fault of the suite."""
        outcomes = []
        for step in steps:
            outcomes.append(host.run(self.job(step)))
            if outcomes[-1].ended != "done":
                raise AssertionError(f"{step} of {self.name} failed undisturbed: {outcomes[-1]}\n{host.said()}")
        return outcomes


@dataclass(frozen=True, kw_only=True)
class Calm:
    """The undisturbed run: what each round left behind, what its step and those after told, which effects it had."""

    remains: Sequence[Remains] = field(default_factory=list)
    told: Sequence[list[Mapping[str, Any]]] = field(default_factory=list)
    effects: Sequence[tuple[str, ...]] = field(default_factory=list)

    @classmethod
    def of(cls, scene: Scene, host: Host, rounds: int) -> Calm:
        """Run ``rounds`` of ``scene``."""
        scene.create()
        left, told, effects = [], [], []
        for _ in range(rounds):
            scene.next_round()
            scene.do(host, scene.kind.before)
            outcomes = scene.do(host, [scene.kind.step, *scene.kind.after])
            left.append(scene.remains())
            told.append([outcome.told or {} for outcome in outcomes])
            effects.append(outcomes[0].effects)
        return cls(remains=left, told=told, effects=effects)
