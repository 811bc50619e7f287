"""A pytest plugin: with Recount installed, every test can ask for the fixture ``topology_driver``.

    def test_a_click_is_counted_in_its_minute(topology_driver):
        driver = topology_driver(clicks_per_minute)
        driver.pipe("clicks", key="ann", value={"page": "/"}, timestamp_ms=5_000)
        driver.advance_to(70_000)
        [result] = driver.read("counts")
        assert (result.key, result.value["clicks"]) == ("ann", 1)

There is no broker and no JVM: a test takes milliseconds. Without pytest, use ``TopologyDriver`` itself.
"""

from collections.abc import Callable

import pytest

from recount.reference.topology_driver import TopologyDriver

__all__ = ["TopologyDriver", "topology_driver"]


@pytest.fixture
def topology_driver() -> Callable[..., TopologyDriver]:
    """Makes a driver: ``topology_driver(topology)``; its arguments are those of ``TopologyDriver``."""
    return TopologyDriver
