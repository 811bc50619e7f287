"""A driver that dies before, between or after its commits changes nothing: not the Kafka output, not the tables.

A sample of ``make faults``. One undisturbed run of a windowed stream is the truth. Two deaths are real: in the open
transaction, and between Kafka's commit and Delta's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.faults.chains import Chain
from tests.faults.effects import Point
from tests.faults.page import world
from tests.faults.scene import Calm, Scene
from tests.faults.strikes import World
from tests.integration.engine.drivers import committed

from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project

ROUNDS = 3
PLANNED, IN_TRANSACTION = Point("checkpoint plan"), Point("kafka offsets recount.*.0", 2)
IN_KAFKA, IN_DELTA = Point("kafka commit recount.*.0"), Point("delta append data/streams/*/state")
LEASE, SECOND_IN_KAFKA = Point("kafka init recount.*.lease"), Point("kafka commit recount.*.0", 2)
REAL = (IN_TRANSACTION, IN_KAFKA)

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


@pytest.mark.parametrize(
    ("fault", "points"),
    [
        ("restart", [PLANNED, IN_TRANSACTION, IN_KAFKA, IN_DELTA]),
        ("checkpoint lost", [LEASE, SECOND_IN_KAFKA]),
        pytest.param("ledger restored", [IN_KAFKA], marks=pytest.mark.thorough),
        pytest.param("zombie", [IN_TRANSACTION], marks=pytest.mark.thorough),
    ],
)
def test_a_fault_after_an_effect_leaves_no_difference(
    struck: World, calm: Calm, tmp_path: Path, fault: str, points: Sequence[Point]
) -> None:
    chain = Chain(struck, tmp_path, "windowed", calm, fault, random.Random(1), real=REAL)
    assert all(map(chain.is_possible, points))
    found = list(chain.run(points))
    assert {case.point for case in found if not case.wrong} == set(points), list(map(str, found))
    if fault == "restart":
        assert {case.point for case in found if case.real} == set(REAL)
        results = f"{chain.streams[-1]}-revenue"
        aborted = committed(struck.connection, results, "read_uncommitted")
        assert len(aborted) > len(committed(struck.connection, results)), "no transaction was open when a driver died"


def test_the_undisturbed_run_has_all_that_is_compared(calm: Calm) -> None:
    assert [what for what, rows in calm.remains[-1].items() if not rows] == ["corrections *_revenue"]
