"""``recount play`` has one stream audited within its first ten minutes."""

from __future__ import annotations

from typing import Any

from recount.core.errors import Transient
from recount.play.first_audit import AFTER_S, FirstAudit


class Shop:
    """Of which Airflow answers from the second request on."""

    audited_first: str | None = "revenue-by-region"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def audit_now(self, stream: str) -> None:
        self.asked.append(stream)
        if len(self.asked) == 1:
            raise Transient("Airflow does not answer", given="x", expected="an answer", remedy="wait")


def news(first: FirstAudit, now_s: float) -> str:
    return " ".join(first.news(now_s))


def test_it_begins_when_results_can_be_judged_and_once_and_is_tried_again_where_airflow_does_not_answer() -> None:
    shop: Any = Shop()
    first = FirstAudit(shop=shop, begun_s=100.0)
    assert AFTER_S < 600
    assert news(first, 99.0 + AFTER_S) == "" and shop.asked == []
    assert "tried again: Airflow does not answer" in news(first, 100.0 + AFTER_S)
    assert "has begun" in news(first, 110.0 + AFTER_S)
    assert news(first, 120.0 + AFTER_S) == ""
    assert shop.asked == ["revenue-by-region"] * 2


def test_without_audited_streams_there_is_none() -> None:
    shop: Any = Shop()
    shop.audited_first = None
    assert news(FirstAudit(shop=shop, begun_s=0.0), 10_000.0) == "" and shop.asked == []
