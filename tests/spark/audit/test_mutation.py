"""The prover is proved: every kind of tampering is found, by its right name, and nothing else is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.spark.audit.conftest import Scene, an_hour_of_orders

from recount.audit.expectation_outcomes import EXIT_DISAGREED, EXIT_FAILED
from recount.audit.expectations import FAILED, HOLDS, validate
from recount.audit.mutation import KINDS, Mutation, mutate
from recount.core.verdict import Difference

pytestmark = pytest.mark.timeout(900)
"""Streams and audits run for real: minutes where other work shares the machine."""


def test_every_mutation_of_an_output_is_found_and_named(tiny: None, scene: Scene) -> None:
    an_hour_of_orders(scene)
    scene.run(max_offsets=40)
    mutations = {kind: mutate(scene.session, scene.settings, scene.topology, kind) for kind in KINDS}
    _append_again(scene, mutations["duplicate"])

    done = scene.audit()

    assert done.findings.outcome == "violation"
    found = set()
    for difference in done.findings.differences:
        assert difference.kind == "output", difference
        found.add((_kind_of(difference, mutations), difference.verdict, difference.place.split()[0]))
    assert found == {
        ("duplicate", "duplicated", "topic"),
        ("duplicate", "duplicated", "table"),
        ("loss", "lost", "table"),
        ("alter", "altered", "topic"),
        ("alter", "altered", "table"),
        ("extra", "extra", "topic"),
        ("extra", "extra", "table"),
        ("replay", "altered", "topic"),
        ("replay", "altered", "table"),
        ("boundary", "extra", "topic"),
        ("boundary", "extra", "table"),
        ("boundary", "lost", "table"),
    }

    # Great Expectations finds the same rows by rules of its own
    audit = done.findings.audit
    outcome = validate(scene.session, scene.settings, scene.topology, audit)
    assert (outcome.exit_code, outcome.disagreements) == (EXIT_FAILED, []), outcome.lines("")
    assert {suite: outcome.told(suite) for suite in outcome.suites} == {
        "raw_log": HOLDS,
        "batch_ledger": HOLDS,
        "outputs-revenue": FAILED,
        "reconciliation": FAILED,
    }

    # and when somebody covers the traces up in what it is shown, it disagrees
    scene.rewrite_kept(audit, {name: name.replace("kafka", "expected") for name in ("kafka", "kafka_doubles")}, "true")
    outcome = validate(scene.session, scene.settings, scene.topology, audit)
    assert outcome.exit_code == EXIT_DISAGREED
    assert any(line.startswith("kafka: Great Expectations found ") for line in outcome.disagreements)


def _append_again(scene: Scene, victim: Mutation) -> None:
    """The victim's row, to the output table: its expectations see tables only."""
    path = scene.tables.output("revenue")
    rows = scene.session.read.format("delta").load(path)
    mine = rows.where((rows.region == victim.key) & (rows.window_start == victim.window_start))
    mine.localCheckpoint().write.format("delta").mode("append").save(path)


def _kind_of(difference: Difference, mutations: Mapping[str, Mutation]) -> str:
    """The mutation whose victim the difference is about; the rogue result of ``extra`` lies far from its victim."""
    for kind, mutation in mutations.items():
        bounds = (mutation.window_start, mutation.window_start + 1)
        if mutation.key == difference.key and difference.window_start in bounds:
            return kind
    return "extra"
