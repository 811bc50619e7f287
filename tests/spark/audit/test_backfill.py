"""A backfill repairs what grace left out, once, and the next audit finds nothing missed."""

from __future__ import annotations

import pytest
from tests.spark.audit.conftest import Scene, an_hour_of_orders

from recount.backfill.plan import plan
from recount.backfill.repair import repair

pytestmark = pytest.mark.timeout(900)
"""Streams and audits run for real: minutes where other work shares the machine."""


def test_a_repair_completes_the_missed_result_and_a_second_repair_changes_nothing(scene: Scene) -> None:
    an_hour_of_orders(scene)
    scene.run(max_offsets=1_000)
    missed = scene.audit().findings
    assert (missed.outcome, missed.counts["completeness missed"]) == ("match", 1)

    planned = plan(scene.session, scene.tables, scene.topology)
    [change] = planned.changes.collect()
    assert (change.now_orders, change.orders, change.now_revision, change.revision) == (5, 6, 0, 1)
    first = repair(scene.session, scene.settings, planned)
    again = repair(scene.session, scene.settings, plan(scene.session, scene.tables, scene.topology, missed.audit))
    assert (first.corrections, first.published) == (1, (missed.audit,))
    assert (again.corrections, again.published) == (1, ())

    repaired = scene.audit().findings
    assert (repaired.outcome, repaired.misses) == ("match", ())
    assert repaired.counts["completeness repaired"] == 1
