"""The prover is proved: every kind of tampering is found, by its right name, and nothing else is."""

from __future__ import annotations

from recount.audit.mutation import KINDS, mutate
from recount.core.verdict import Difference
from tests.spark.audit.conftest import Scene, an_hour_of_orders


def test_every_mutation_of_an_output_is_found_and_named(scene: Scene) -> None:
    an_hour_of_orders(scene)
    scene.run(max_offsets=40)
    mutations = {kind: mutate(scene.session, scene.settings, scene.topology, kind) for kind in KINDS}

    done = scene.audit()

    assert done.findings.outcome == "violation"
    found = set()
    for difference in done.findings.differences:
        assert difference.kind == "output", difference
        found.add((_kind_of(difference, mutations), difference.verdict, difference.place.split()[0]))
    for difference in done.findings.differences:
        print(difference)
    assert found == {
        ("duplicate", "duplicated", "topic"),
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


def _kind_of(difference, mutations):
    for kind, mutation in mutations.items():
        if mutation.key == difference.key and mutation.window_start in (
            difference.window_start,
            difference.window_start - 1,
        ):
            return kind
    return "extra"
