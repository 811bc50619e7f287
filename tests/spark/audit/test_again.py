"""An audit can be repeated from its certificate, and what was changed since is named (issue 12, 4)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from tests.spark.audit.conftest import Scene, an_hour_of_orders, order

from recount.audit.carry.store import SNAPSHOTS, VERDICTS
from recount.audit.certificate.certificate_files import load
from recount.audit.certificate.signing import PUBLIC_KEY, chain_in, make_keys, public_keys
from recount.audit.repeated_audit import NotTheSame, again
from recount.declare.columns import BATCH
from recount.declare.topology import Topology
from recount.kafka.compacted import published_head
from recount.runtime.errors import Terminal


def test_a_signed_audit_is_repeated_from_its_certificate_until_an_output_is_changed(
    scene: Scene, tmp_path: Path
) -> None:
    make_keys(tmp_path / "keys", reports=tmp_path / "reports")
    scene = replace(scene, settings=replace(scene.settings, keys=str(tmp_path / "keys")))
    an_hour_of_orders(scene)
    scene.run(max_offsets=40)
    scene.audit()
    scene.produce([(partition, 90 * 60_000, order("EU", 1.0)) for partition in (0, 1)])
    scene.run()
    second = scene.audit()
    scene.produce([(partition, 120 * 60_000, order("EU", 1.0)) for partition in (0, 1)])
    scene.run()
    third = scene.audit()

    head = published_head(scene.connection, scene.topology.name)
    keys = public_keys([tmp_path / "keys" / PUBLIC_KEY])
    folder = second.certificate.parent
    assert chain_in(folder, folder.name, keys.fault, head, head_is_asked=True).faults() == []

    certificate = load(second.certificate)
    assert certificate["seed"] is not None
    kept = {name: scene_rows(scene, name) for name in (SNAPSHOTS, VERDICTS)}
    said = again(scene.session, scene.settings, scene.topology, certificate)
    assert any("come out again" in line for line in said)
    assert {name: scene_rows(scene, name) for name in kept} == kept

    night = load(third.certificate)
    assert len(night["digests"]["published"]) == 1  # the results topic has two partitions; one got nothing that night
    assert any("come out again" in line for line in again(scene.session, scene.settings, scene.topology, night))

    table = DeltaTable.forPath(scene.session, scene.tables.output("revenue"))
    batch = certificate["cut"]["batch"]
    table.delete(f"{BATCH} = {batch} AND region = 'EU'")
    with pytest.raises(NotTheSame) as changed:
        again(scene.session, scene.settings, scene.topology, certificate)
    told = "; ".join(changed.value.differing)
    assert "tables outputs/revenue: rows was" in told
    assert "verdicts: delta was" in told
    assert "differences_found was 0, is 2" in told  # two windows of EU left with that batch
    assert "log" not in told

    [sink] = scene.topology.sinks
    other = Topology(name=scene.topology.name, sinks=[sink], idle_after="5 s")
    with pytest.raises(Terminal, match="not the one that was audited"):
        again(scene.session, scene.settings, other, certificate)


def scene_rows(scene: Scene, name: str) -> int:
    return scene.session.read.format("delta").load(scene.tables.audit(scene.topology.name, name)).count()
