"""A stream that did its work is proved, and a late record is explained."""

from __future__ import annotations

from tests.spark.audit.conftest import Scene, an_hour_of_orders


def test_a_stream_that_did_its_work_matches_and_its_late_record_is_explained(scene: Scene) -> None:
    an_hour_of_orders(scene)
    scene.run(max_offsets=40)
    done = scene.audit()
    assert done.findings.differences == ()
    assert [account.records for account in done.findings.accounts] == [61, 61]
    assert [miss.late_records for miss in done.findings.misses] == [1]
    assert done.findings.misses[0].explained
