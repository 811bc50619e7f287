"""Night after night: an audit begins where the one before ended, and still judges what is older when it is touched."""

from __future__ import annotations

import pytest
from tests.spark.audit.conftest import MINUTE_MS, Scene, order

from recount.audit.mutation import mutate

pytestmark = pytest.mark.timeout(900)
"""Streams and audits run for real: minutes where other work shares the machine."""


def an_evening(scene: Scene, first_minute: int) -> None:
    minutes = range(first_minute, first_minute + 20)
    scene.produce([(minute % 2, minute * MINUTE_MS, order("EU", 2)) for minute in minutes])


def test_the_second_night_reads_its_own_records_only_and_misses_nothing_of_the_first(scene: Scene) -> None:
    an_evening(scene, 0)
    scene.run()
    first = scene.audit().findings
    assert (first.outcome, first.seed.run) == ("match", None)
    assert first.counts == {"kafka match": 3, "delta match": 3, "completeness kept": 3}

    an_evening(scene, 20)
    scene.produce([(0, 3 * MINUTE_MS, order("EU", 5))])
    scene.run()
    doubled = mutate(scene.session, scene.settings, scene.topology, "duplicate")
    second = scene.audit()

    found = second.findings
    assert found.seed.run is not None
    assert found.seed.run.audit == first.audit
    assert [(part.start, part.end) for part in found.accounts] == [(10, 21), (10, 20)]
    assert [(one.verdict, one.window_start) for one in found.differences] == [("duplicated", doubled.window_start)]
    [miss] = found.misses
    assert (miss.window_start, miss.late_records, miss.explained) == (doubled.window_start, 1, True)
    assert found.counts["kafka match"] == 4

    whole = scene.audit(from_the_beginning=True).findings
    assert whole.counts == {
        "kafka match": 6,
        "kafka duplicated": 1,
        "delta match": 7,
        "completeness kept": 6,
        "completeness missed": 1,
    }
