"""A topology of joins, lookups and sessions is proved; what is tampered with is found; what came late is explained."""

from __future__ import annotations

import pytest
from tests.spark.audit.shop import Shop, shop  # noqa: F401 - a fixture

pytestmark = pytest.mark.timeout(900)


def test_a_topology_that_did_its_work_matches(shop: Shop) -> None:  # noqa: F811
    shop.a_day()
    done = shop.audit()
    for one in done.findings.differences:
        print(one)
    print(done.findings.counts, done.findings.misses)
    assert done.findings.outcome == "match"
