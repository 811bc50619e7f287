"""Which audit a backfill repairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk.exceptions import AirflowFailException


def chosen_audit(params: Mapping[str, Any], asset_events: Mapping[Any, Any]) -> str:
    """The parameter ``audit``, or else the newest audit that an asset event names."""
    if params["audit"]:
        return str(params["audit"])
    announced = [event.extra["audit"] for events in asset_events.values() for event in events]
    if not announced:
        raise AirflowFailException("no audit to repair: give its id (from its certificate) as the parameter audit")
    return str(max(announced))
