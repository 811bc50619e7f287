"""What is done to the machines of a long run, and when: drawn from a seed, with every kind of fault among it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

Kind = Literal[
    "driver killed",
    "driver killed, its checkpoint removed",
    "driver stopped by order",
    "driver held up beside a new one",
    "worker killed",
    "broker killed",
    "broker restarted",
    "audit killed",
]
OFTEN: dict[Kind, int] = {
    "driver killed": 5,
    "driver killed, its checkpoint removed": 3,
    "driver stopped by order": 2,
    "driver held up beside a new one": 3,
    "worker killed": 2,
    "broker killed": 3,
    "broker restarted": 1,
    "audit killed": 1,
}
"""How many of each kind there are among 20 faults in a row."""
BROKERS, WORKERS = 3, 2
_PAIR_EVERY = 6
_LEAST_S, _MOST_S = 12.0, 15.0
_FIRST_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing done to one ``target``: a stream, or the number of a worker or broker; an audit is of a stream.

    ``lasts_s``: how long a driver is held up, how long a machine is away, or how old the audit is that is killed.
    """

    kind: Kind
    target: str
    lasts_s: float

    def __str__(self) -> str:
        return f"{self.kind}: {self.target}"


@dataclass(frozen=True, kw_only=True)
class Strike:
    """What is done ``at_s`` seconds after the run began: one fault, or two at once, of different kinds of machines."""

    at_s: float
    faults: tuple[Fault, ...]


def planned(seed: int, minutes: float, streams: Sequence[str]) -> list[Strike]:
    """A strike every 12 to 15 seconds, every sixth of them two faults at once; the same seed gives the same plan."""
    chance = random.Random(seed)
    source, coming = _faults(chance, streams), deque[Fault]()
    strikes: list[Strike] = []
    at_s = _FIRST_S
    while at_s < minutes * 60:
        coming.extend(islice(source, 20 - len(coming)))
        together = [coming.popleft()]
        if len(strikes) % _PAIR_EVERY == _PAIR_EVERY - 1:
            together.append(next(fault for fault in coming if _machine(fault) != _machine(together[0])))
            coming.remove(together[1])
        strikes.append(Strike(at_s=round(at_s, 1), faults=tuple(together)))
        at_s += chance.uniform(_LEAST_S, _MOST_S)
    return strikes


def _faults(chance: random.Random, streams: Sequence[str]) -> Iterator[Fault]:
    """Twenty of all kinds in any order, then twenty again; each kind hits its targets in turn."""
    targets = {"stream": _in_turn(chance, streams), "audit": _in_turn(chance, streams)}
    targets["broker"] = _in_turn(chance, [str(number) for number in range(1, BROKERS + 1)])
    targets["worker"] = _in_turn(chance, [str(number) for number in range(1, WORKERS + 1)])
    while True:
        kinds = [kind for kind, often in OFTEN.items() for _ in range(often)]
        chance.shuffle(kinds)
        for kind in kinds:
            machine = kind.split()[0]
            target = next(targets["stream" if machine == "driver" else machine])
            seconds = chance.uniform(8, 24) if machine == "audit" else chance.uniform(4, 12)
            yield Fault(kind=kind, target=target, lasts_s=round(seconds, 1))


def _in_turn(chance: random.Random, targets: Sequence[str]) -> Iterator[str]:
    while True:
        yield from chance.sample(list(targets), len(targets))


def _machine(fault: Fault) -> str:
    return fault.kind.split()[0]
