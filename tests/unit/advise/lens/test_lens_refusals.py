"""Topologies without a model are refused with the name of the operator; of the shop's streams it is known which are."""

from __future__ import annotations

import pytest
from tests.unit.advise.lens.lens_logs import CLICKS, OUT

from recount.advise.lens_model import Modelled, NoModel
from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.registry import declared
from recount.declare.topology import Topology, stream
from recount.declare.windows import session, tumbling

MODELLED = {
    "method-totals",
    "order-summary",
    "page-paths",
    "page-view-counts",
    "product-revenue",
    "revenue-by-region",
    "views-hopping-10-min",
    "views-hopping-60-s",
    "views-session-10-min",
    "views-tumbling-1-min",
    "views-tumbling-5-min",
}


def has_model(topology: Topology) -> bool:
    try:
        return bool(Modelled.of(topology))
    except NoModel:
        return False


def test_which_streams_of_the_shop_have_a_model() -> None:
    assert {name for name, topology in declared().topologies.items() if has_model(topology)} == MODELLED


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("views-sliding-30-s", "sliding 30 s"),
        ("views-last-100", "emit each record: no record is late for it in any engine"),
        ("click-sessions", "at most 1 d, grace 0 ms: neither of the others has a longest duration"),
        ("orders-deduplicated", "first of each order_id by offset within 1 h"),
        ("high-value-orders", "0 windowed aggregations"),
    ],
)
def test_the_operator_that_has_no_model_is_named(name: str, operator: str) -> None:
    with pytest.raises(NoModel) as refused:
        Modelled.of(declared().topologies[name])
    assert operator in str(refused.value.given)


def test_what_is_spread_twice_is_refused() -> None:
    flow = stream(CLICKS).repartition(2).select_key(user=col("user")).windowed_by(tumbling("1 s", grace="0 s"))
    twice = Topology(name="twice", sinks=[flow.aggregate(n=count()).emit_final().to(OUT)])
    with pytest.raises(NoModel) as refused:
        Modelled.of(twice)
    assert refused.value.given == "repartition to 2, after which records are spread once more"


def test_an_action_is_no_step() -> None:
    """Nothing is done to the world when a log is looked at."""
    seen: list[object] = []
    flow = stream(CLICKS).peek(seen.append).windowed_by(session("1 s", grace="0 s")).aggregate(n=count()).emit_final()
    assert Modelled.of(Topology(name="peeking", sinks=[flow.to(OUT)])).steps == ()
