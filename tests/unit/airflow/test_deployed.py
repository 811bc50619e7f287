"""Airflow sees which declarations are deployed now, whatever its own process has imported before, and imports none."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from recount.airflow.deployed import DeployedDeclarations, deployed, fingerprint_now, require_admitted
from recount.declare.fingerprint import Declared
from recount.declare.registry import declared, packed, unpacked
from recount.pages.charts import drawing
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.decisions import DeclarationLog, OtherDeclaration

MODULE = """
from parcels_rules import LIMIT
from recount.declare.expressions import col
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream

parcels = Topic(name="parcels", key="id", value=RecordSchema.of(grams=LONG))
heavy = stream(parcels).filter(col("grams") > LIMIT).map(lambda row: row, grams=LONG)
one = Topology(name="NAME", sinks=[heavy.to(Topic(name="heavy", key="id"))])
"""


@pytest.fixture
def deploy(set_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts the module ``parcels`` in place, with a stream of that name, and the module it imports."""
    monkeypatch.setenv("RECOUNT_TOPOLOGIES", "parcels")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, limit: str = "1000") -> None:
        (tmp_path / "parcels.py").write_text(MODULE.replace("NAME", name))
        (tmp_path / "parcels_rules.py").write_text(f"LIMIT = {limit}")

    return write


def test_a_later_deployment_is_shown_by_the_next_page(deploy: Callable[..., None]) -> None:
    deploy("light")
    known = DeployedDeclarations("parcels")
    first = known.now()
    assert list(first.declarations.streams) == ["light"]
    assert known.now().declarations is first.declarations, "nothing is imported where no file has changed"

    deploy("renamed")
    assert list(known.now().declarations.streams) == ["renamed"]
    deploy("renamed", limit="20_000")  # of a module that the declared one imports
    assert "20000" in str(Declared.of(known.now().declarations.streams["renamed"]).document)
    assert not {"parcels", "parcels_rules"} & set(sys.modules)


def test_a_deployment_that_cannot_be_read_leaves_the_former_one_and_says_why(deploy: Callable[..., None]) -> None:
    deploy("light")
    known = DeployedDeclarations("parcels")
    assert known.now().problem is None
    deploy("light", limit="1 / 0")
    broken = known.now()
    assert list(broken.declarations.streams) == ["light"]
    assert "ZeroDivisionError" in (broken.problem or "")
    deploy("mended")
    assert (list(known.now().declarations.streams), known.now().problem) == (["mended"], None)


def test_a_launch_that_would_be_refused_is_known_before_it(deploy: Callable[..., None], settings: Settings) -> None:
    """Item 1.4: Airflow sees which declaration is deployed now, whatever its own process has imported before."""
    here = replace(settings, topologies="parcels")
    deploy("light")
    require_admitted(here, "light")
    known = deployed(here, "light")
    DeclarationLog(here.data, "light").enact("first", known)
    require_admitted(here, "light")
    assert fingerprint_now(here, "light") == known.fingerprint
    deploy("light", limit="20_000")
    with pytest.raises(OtherDeclaration, match="20000"):
        require_admitted(here, "light")
    assert fingerprint_now(here, "light") not in (known.fingerprint, None)
    deploy("light", limit="1 / 0")
    assert fingerprint_now(here, "light") is None
    with pytest.raises(Terminal, match="ZeroDivisionError"):
        deployed(here, "light")


def test_the_shop_is_the_same_without_its_code() -> None:
    shop, read = declared(), unpacked(packed("topologies")).declarations
    assert list(read.streams) == list(shop.streams)
    assert {name: one.members for name, one in read.groups.items()} == {
        name: one.members for name, one in shop.groups.items()
    }
    assert read.modules == shop.modules
    for name, topology in shop.topologies.items():
        found, expected = drawing(read.topologies[name], {}), drawing(topology, {})
        assert {arrow.of for arrow in found.arrows} == {arrow.of for arrow in expected.arrows}
        assert {box.text for box in found.boxes} == {box.text for box in expected.boxes}
        assert read.streams[name].health == topology.health
