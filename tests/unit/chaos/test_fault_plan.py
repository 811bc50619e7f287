"""The plan of a long run: as many faults as are asked for, mixed, and the same for the same seed."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from tests.chaos.fault_plan import OFTEN, Fault, planned

STREAMS = ("revenue", "priced", "visits")
PLAN = planned(seed=1, minutes=30, streams=STREAMS)
FAULTS = [fault for strike in PLAN for fault in strike.faults]


def test_half_an_hour_has_more_than_a_hundred_faults_twelve_to_fifteen_seconds_apart() -> None:
    assert len(FAULTS) >= 120
    gaps = [after.at_s - before.at_s for before, after in pairwise(PLAN)]
    assert min(gaps) >= 11.9 and max(gaps) <= 15.1
    assert PLAN[-1].at_s < 30 * 60


def test_the_faults_are_mixed_as_often_as_is_said() -> None:
    kinds = Counter(fault.kind for fault in FAULTS)
    assert kinds.keys() == OFTEN.keys()
    for kind, often in OFTEN.items():
        assert abs(kinds[kind] - often * len(FAULTS) / sum(OFTEN.values())) <= often + 2, kind


@pytest.mark.parametrize("machine", ["driver", "audit"])
def test_every_stream_is_hit_as_often_as_the_others(machine: str) -> None:
    hit = Counter(fault.target for fault in FAULTS if fault.kind.startswith(machine))
    assert hit.keys() == set(STREAMS)
    assert max(hit.values()) - min(hit.values()) <= 2


def test_two_faults_at_once_hit_different_kinds_of_machines() -> None:
    pairs = [strike.faults for strike in PLAN if len(strike.faults) > 1]
    assert len(pairs) >= 15

    def machine(fault: Fault) -> str:
        return fault.kind.split()[0]

    assert all(machine(first) != machine(second) for first, second in pairs)


def test_a_seed_gives_one_plan_and_another_seed_another() -> None:
    assert planned(seed=1, minutes=30, streams=STREAMS) == PLAN
    assert planned(seed=2, minutes=30, streams=STREAMS) != PLAN
