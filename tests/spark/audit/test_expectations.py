"""Great Expectations looks at what an audit looked at, in full size; where it says otherwise, that is told."""

from __future__ import annotations

import json

import pytest
from tests.spark.audit.conftest import Scene, an_hour_of_orders

from recount.audit import expectations
from recount.audit.audit_session import suit
from recount.audit.data_docs import data_docs
from recount.audit.expectation_outcomes import EXIT_DISAGREED, expectations_page_of, outcome_of
from recount.audit.expectations import validate

pytestmark = pytest.mark.timeout(900)
"""Streams and audits run for real: minutes where other work shares the machine."""


def test_expectations_hold_for_an_honest_night_and_what_they_alone_find_is_a_disagreement(
    tiny: None, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    an_hour_of_orders(scene)
    scene.run(max_offsets=40)

    honest = scene.audit().findings.audit
    suited: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(expectations, "suit", lambda session, offsets: suited.append(offsets) or suit(session, offsets))
        outcome = validate(scene.session, scene.settings, scene.topology, honest)
    read, written = suited
    assert read == 122, "a session for few records looks at many of the raw log on one core"
    assert written < read
    assert outcome.exit_code == 0, outcome.lines("")
    assert {suite: outcome.told(suite) for suite in outcome.suites} == dict.fromkeys(
        ("raw_log", "batch_ledger", "outputs-revenue", "reconciliation"), "holds"
    )
    assert data_docs(scene.settings.reports).exists()
    page = expectations_page_of(scene.settings.reports, scene.topology.name, honest).read_text()
    for text in (
        "<code>revenue</code></td><td>decimal(38, 2), as the sink declares it.",
        f"<h1>{scene.topology.name}, ",
    ):
        assert text in page
    assert "http" not in page and "<script" not in page
    kept = json.loads(outcome_of(scene.settings.reports, scene.topology.name, honest).read_text())
    assert (kept["exit_code"], kept["disagreements"]) == (0, [])

    # the judge holds, Great Expectations does not
    rewritten = scene.rewrite_kept(honest, {"kafka": "array('other')"}, "key = 'EU'")
    outcome = validate(scene.session, scene.settings, scene.topology, honest)
    assert outcome.exit_code == EXIT_DISAGREED
    assert [line.partition(":")[0] for line in outcome.disagreements] == ["kafka", "kafka values"]
    assert f"found {rewritten}, the audit's judge 0" in outcome.disagreements[0]
