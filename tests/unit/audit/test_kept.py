"""A results topic that was deleted and made anew is told from one that has grown."""

from __future__ import annotations

import pytest

from recount.audit.kept import require_grown
from recount.core.errors import Terminal
from recount.kafka.offsets import LogRange


def test_a_topic_that_ends_where_the_last_audit_ended_or_later_has_grown() -> None:
    require_grown("revenue", {0: 10, 1: 0}, {0: LogRange(start=10, end=10), 1: LogRange(start=0, end=3)})


@pytest.mark.parametrize("spans", [{0: LogRange(start=0, end=9)}, {1: LogRange(start=0, end=20)}, {}])
def test_a_topic_that_ends_before_the_last_audit_did_is_another(spans: dict[int, LogRange]) -> None:
    with pytest.raises(Terminal) as refused:
        require_grown("revenue", {0: 10}, spans)
    assert "--from-the-beginning" in str(refused.value)
