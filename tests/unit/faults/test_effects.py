"""A death in a process that goes on: at its point, and for every thread of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.effects import Effects, Killed, Point, points


def effects_of(at: Point | None) -> Effects:
    """Those of a stream called ``orders``, which dies at ``at``."""
    effects = Effects()
    effects.root = Path("/data")
    effects.begin(("orders",), at, effects.die)
    return effects


def test_a_driver_dies_after_the_nth_effect_of_a_name() -> None:
    effects = effects_of(Point("append late/*", 2))
    effects.happened("append late/orders")
    effects.happened("append state/orders")
    with pytest.raises(Killed):
        effects.happened("append late/orders")
    assert effects.seen == ["append late/*", "append state/*", "append late/*"]


def test_an_effect_is_the_same_in_each_reset_of_a_chain() -> None:
    effects = effects_of(None)
    for version in (2, 3):
        effects.happened(f"file rename data/former/orders/{version}/streams/orders")
    assert effects.seen == ["file rename data/former/*/*/streams/*"] * 2


def test_what_is_dead_does_nothing_more_and_drops_what_it_had_not_sent() -> None:
    effects, dropped = effects_of(Point("commit")), []
    effects.at_death(lambda: dropped.append("records"))
    effects.require_alive()
    with pytest.raises(Killed):
        effects.happened("commit")
    assert dropped == ["records"]
    with pytest.raises(Killed):
        effects.require_alive()
    effects.begin(("orders",))
    effects.require_alive()


def test_no_handler_of_exceptions_takes_a_death_for_an_error() -> None:
    assert not issubclass(Killed, Exception)


def test_the_points_of_a_run_count_each_name_from_1() -> None:
    assert points(["a", "b", "a"]) == [Point("a", 1), Point("b", 1), Point("a", 2)]


def test_what_lies_outside_of_the_folder_is_no_effect() -> None:
    effects = effects_of(None)
    assert effects.place("/data/streams/orders/late") == "streams/orders/late"
    assert effects.place("file:///data/x") == "x"
    assert effects.place("/database/x") is None
