"""What an audit finds does not depend on how much of it fits at hand."""

from __future__ import annotations

import pytest
from tests.spark.audit.conftest import Scene, an_hour_of_orders

from recount.audit import judgement, keeping, listing
from recount.audit.mutation import mutate

pytestmark = pytest.mark.timeout(900)
"""Streams and audits run for real: minutes where other work shares the machine."""


def test_an_audit_in_many_parts_says_what_one_in_one_part_says(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    an_hour_of_orders(scene)
    scene.run(max_offsets=40)
    for kind in ("duplicate", "loss", "alter"):
        mutate(scene.session, scene.settings, scene.topology, kind)
    whole = scene.audit().findings

    monkeypatch.setattr(keeping, "ROWS_AT_HAND", 7)
    monkeypatch.setattr(keeping, "RECORDS_AT_HAND", 3)
    monkeypatch.setattr(listing, "RECORDS_AT_HAND", 0)
    monkeypatch.setattr(judgement, "RESULTS_AT_ONCE", 20)
    parts = scene.audit(from_the_beginning=True).findings

    assert whole.outcome == "violation"
    assert (parts.counts, parts.differences, parts.misses) == (whole.counts, whole.differences, whole.misses)
    assert (parts.series, parts.accounts) == (whole.series, whole.accounts)
