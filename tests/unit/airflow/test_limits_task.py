"""A night beyond its declared limits is red in the grid, though its audit matched."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from recount.airflow.audits import LimitsOperator

BEYOND = "200,000 dead letters in 400,000 records"


@pytest.mark.parametrize(
    ("warnings", "params", "ends"),
    [
        ("", {}, nullcontext()),
        (BEYOND, {"announce": True}, pytest.raises(AirflowFailException, match="200,000 dead letters")),
        (BEYOND, {"announce": False}, pytest.raises(AirflowSkipException)),
        ("None", {}, pytest.raises(AirflowSkipException)),
    ],
    ids=["within", "beyond: says by how much", "after a repair: not again", "could not judge"],
)
def test_a_night_fails_beyond_a_limit_only(warnings: str, params: dict[str, bool], ends: Any) -> None:
    night: Any = {"params": params}
    with ends:
        LimitsOperator(task_id="limits", stream="revenue", warnings=warnings).execute(night)
