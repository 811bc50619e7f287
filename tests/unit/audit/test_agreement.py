"""When Great Expectations and the judge say the same, by what must, may and must exactly be found."""

from __future__ import annotations

import pytest

from recount.audit.expectations.suites import Judged, disagreements


@pytest.mark.parametrize(
    ("judged", "unexpected", "agrees"),
    [
        (Judged(must=0, may=0), 0, True),
        (Judged(must=0, may=0), 1, False),
        (Judged(must=2, may=2), 0, False),
        (Judged(must=2, may=2), 5, True),
        (Judged(must=0, may=3), 0, True),
        (Judged(must=0, may=3), 1, True),
        (Judged(must=3, may=3, is_exact=True), 3, True),
        (Judged(must=3, may=3, is_exact=True), 2, False),
        (Judged(must=3, may=3, is_exact=True), 4, False),
    ],
)
def test_what_one_finds_the_other_must_find(judged: Judged, unexpected: int, agrees: bool) -> None:
    assert judged.agrees(unexpected) is agrees


def test_a_suite_without_the_expectation_found_nothing() -> None:
    judged = {"kafka": Judged(must=2, may=2, is_exact=True), "delta": Judged(must=0, may=0, is_exact=True)}
    assert disagreements({"kafka": [2]}, judged) == []
    assert disagreements({}, judged) == ["kafka: Great Expectations found 0, the audit's judge 2"]
