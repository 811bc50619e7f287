"""Cases in a row: one stream, one fault, round by round at another point; judged after each round."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.effects import Point, points
from tests.faults.parts import Part
from tests.faults.scene import Calm, Scene, differences
from tests.faults.strikes import FAULTS, Struck, World, small_disk

ROUNDS = 8
_TRIES = 4
_SERIES = 3
"""Drivers of one round that die one after the other, each at another point."""
_REAL_DEATHS = 10
"""One death of so many is a SIGKILL; the others share their process with the next driver."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fault at a point of a part, and what was wrong after it; ``wrong`` is empty where it is as undisturbed."""

    part: str
    fault: str
    point: Point
    wrong: str = ""
    refused: bool = False
    real: bool = False
    took_s: float = 0.0

    def __str__(self) -> str:
        how = self.wrong or ("refused, then as undisturbed" if self.refused else "as undisturbed")
        return f"{self.part}, {self.fault}, {self.point}{' (-9)' if self.real else ''}: {how} [{self.took_s:.0f} s]"


@dataclass
class Chain:
    """All ``points`` of ``part`` under ``fault``; a stream that went wrong is left, and another one takes its place."""

    world: World
    folder: Path
    part: str
    calm: Calm
    fault: str
    chance: random.Random
    say: Callable[[Case], None] = lambda case: print(case, flush=True)
    real: Collection[Point] | None = None
    """Where a death is a SIGKILL to the process, its JVM and its workers; None: at one point of ten."""
    streams: list[str] = field(default_factory=list, init=False)
    """The names of those that were struck, the last one last."""
    _left: list[Point] = field(default_factory=list, init=False)
    _alone: set[Point] = field(default_factory=set, init=False)

    def run(self, chosen: Sequence[Point]) -> Iterator[Case]:
        """One case for each of the points, which are possible."""
        self._left = list(chosen)
        self._alone = set()
        while self._left:
            try:
                with self._stream() as scene:
                    yield from self._along(scene)
            except Exception as error:
                # a driver that hangs, or ends where nothing happens to it; a broker that is not there for the suite
                self.world.first.stop()
                self.world.second.stop()
                point = self._left.pop(0)
                case = Case(
                    part=self.part, fault=self.fault, point=point, wrong=f"{type(error).__name__}: {error}"[:2_000]
                )
                self.say(case)
                yield case

    def is_possible(self, point: Point) -> bool:
        """Whether a stream comes to the point when this fault can happen."""
        rounds = range(len(self.calm.effects))
        return FAULTS[self.fault].concerns(point.name) and any(point in self._met(round_) for round_ in rounds)

    def _along(self, scene: Scene) -> Iterator[Case]:
        """Rounds of one stream while all is right and there are points that they come to."""
        for round_ in range(len(self.calm.effects)):
            if FAULTS[self.fault].needs_backup:
                scene.keep_backup()
            scene.next_round()
            scene.do(self.world.first, scene.kind.before)
            series = self._series(round_)
            if not series:
                scene.do(self.world.first, [scene.kind.step, *scene.kind.after])
                continue
            cases = self._struck(scene, series, round_)
            for case in cases:
                self._left.remove(case.point)
                self.say(case)
                yield case
            if not self._left or not cases or any(case.wrong for case in cases):
                return

    def _met(self, round_: int) -> list[Point]:
        """The points that the round comes to; there is a backup that is old enough from the third round on."""
        is_too_early = FAULTS[self.fault].needs_backup and round_ < 2
        return [] if is_too_early else points(self.calm.effects[round_])

    def _series(self, round_: int) -> list[Point]:
        """The points of a round: where a driver dies and nothing else happens, the next can die a little further."""
        due = [one for one in self._met(round_) if one in self._left]
        alone = [one for one in due if one in self._alone]
        return due[:_SERIES] if FAULTS[self.fault].is_death_only and not alone else (alone or due)[:1]

    def _struck(self, scene: Scene, series: Sequence[Point], round_: int) -> list[Case]:
        """Strike at each point in turn, then judge them together; none where the series says nothing of its points.

        A driver that goes on where another one died does not do again what is done: it may not come to the next
        point. That one, and all of a series that went wrong, are tried again alone.
        """
        began, reached = time.monotonic(), []
        for point in series:
            drawn = self.chance.randrange(_REAL_DEATHS) == 0 if self.real is None else point in self.real
            real = drawn and not FAULTS[self.fault].goes_on
            struck = FAULTS[self.fault].strike(self.world, scene, point, "kill -9" if real else "die")
            if not struck.reached and len(series) > 1:
                self._alone.add(point)
                continue
            reached.append((point, real, struck))
            if struck.wrong or not struck.reached:
                break
        wrong = self._judged(scene, [struck for _, _, struck in reached], round_)
        if wrong and len(series) > 1:
            self._alone.update(series)
            return []
        took_s = (time.monotonic() - began) / max(1, len(reached))
        return [
            Case(
                part=self.part,
                fault=self.fault,
                point=point,
                wrong=wrong,
                refused=struck.is_refused and not wrong,
                real=real,
                took_s=took_s,
            )
            for point, real, struck in reached
        ]

    def _judged(self, scene: Scene, struck: Sequence[Struck], round_: int) -> str:
        """Drivers until one ends well, and what is wrong then."""
        for one in struck:
            if one.wrong or not one.reached:
                return one.wrong or f"did not come to its point: {one.outcome}"
        outcome = struck[-1].outcome if struck else None
        for _ in range(_TRIES):
            if outcome is not None and outcome.ended == "done":
                break
            outcome = self.world.first.run(scene.job())
            if outcome.terminal:
                break
        assert outcome is not None
        if outcome.ended != "done":
            return f"no driver goes on: {outcome}"
        told = [outcome.told or {}]
        for step in scene.kind.after:
            outcome = self.world.first.run(scene.job(step))
            if outcome.ended != "done":
                return f"no {step} after it: {outcome}"
            told.append(outcome.told or {})
        if told != self.calm.told[round_]:
            return f"told {told}, not {self.calm.told[round_]}"
        return "; ".join(differences(self.calm.remains[round_], scene.remains()))

    @contextmanager
    def _stream(self) -> Iterator[Scene]:
        """A new stream in a folder of its own."""
        # without a '-', which the names of tables have not
        fault = self.fault.replace("+", "plus")
        name = "".join(filter(str.isalnum, f"{self.part} {fault} {len(self.streams) + 1}"))
        self.streams.append(name)
        folder = self.folder / name
        if FAULTS[self.fault].needs_disk:
            with small_disk(folder) as disk:
                yield self._created(name, disk)
        else:
            yield self._created(name, folder)
            shutil.rmtree(folder, ignore_errors=True)

    def _created(self, name: str, folder: Path) -> Scene:
        scene = Scene(self.part, name, folder, self.world.connection)
        scene.create()
        return scene


def kill_points(calm: Calm, part: Part, chance: random.Random) -> list[Point]:
    """Every effect of the undisturbed run once, at a time of its that is drawn."""
    found: dict[str, set[int]] = {}
    for effects in calm.effects:
        for point in points(effects):
            found.setdefault(point.name, set()).add(point.nth)
    return [Point(name, chance.choice(sorted(times)[:2])) for name, times in found.items() if part.strikes_at(name)]
