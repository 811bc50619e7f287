"""Which driver serves its metrics at which port."""

from __future__ import annotations

import pytest

from recount.runtime.errors import InvalidDeclaration
from recount.runtime.settings import InvalidSettings, Settings, metric_ports


def test_each_driver_has_a_port_and_without_a_setting_none_has() -> None:
    assert metric_ports("") == {}
    assert metric_ports(" orders=9401 ,archive-clicks = 9402,") == {"orders": 9401, "archive-clicks": 9402}
    assert metric_ports("archive-Clicks_EU.v1=9403") == {"archive-Clicks_EU.v1": 9403}


@pytest.mark.parametrize(
    "text", ["9401", "orders", "orders=", "orders=0", "orders=65536", "orders=1, orders=2", "a=1, b=1", "a=1;b=2"]
)
def test_what_is_no_list_of_ports_is_refused(text: str) -> None:
    with pytest.raises(InvalidDeclaration):
        metric_ports(text)
    with pytest.raises(InvalidSettings, match="RECOUNT_METRICS: invalid ports of metrics"):
        Settings.from_environment({"RECOUNT_METRICS": text})
