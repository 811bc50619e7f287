"""A seeded sample of ``make faults``: some effects of a windowed stream, each with another fault."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.chains import Chain, kill_points
from tests.faults.parts import PARTS
from tests.faults.scene import Calm, Scene
from tests.faults.strikes import World
from tests.faults.trials import world

from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.project import Project

ROUNDS, EACH, SEED = 3, 2, 20_261_122

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def struck(tmp_path_factory: pytest.TempPathFactory, project: Project, kafka: EmbeddedKafka) -> Iterator[World]:
    """A process that streams die in, on the broker of the run."""
    with world(tmp_path_factory.mktemp("faults"), kafka, project) as found:
        yield found


@pytest.fixture(scope="module")
def calm(struck: World, tmp_path_factory: pytest.TempPathFactory) -> Calm:
    """The undisturbed run of a windowed stream."""
    scene = Scene("windowed", "samplecalm", tmp_path_factory.mktemp("calm"), struck.connection)
    return Calm.of(scene, struck.first, ROUNDS)


@pytest.mark.parametrize("fault", ["restart", "checkpoint lost"])
def test_a_fault_after_an_effect_leaves_no_difference(struck: World, calm: Calm, tmp_path: Path, fault: str) -> None:
    chance = random.Random(f"{SEED}/{fault}")
    chain = Chain(struck, tmp_path, "windowed", calm, fault, chance)
    chosen = chance.sample(
        [one for one in kill_points(calm, PARTS["windowed"], chance) if chain.is_possible(one)], EACH
    )
    found = list(chain.run(chosen))
    assert {case.point for case in found if not case.wrong} == set(chosen), list(map(str, found))


def test_the_undisturbed_run_has_all_that_is_compared(calm: Calm) -> None:
    assert [what for what, rows in calm.remains[-1].items() if not rows] == ["corrections *_revenue"]
