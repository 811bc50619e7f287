"""What is assumed, as it is typed; what cannot be is refused with what was expected."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.unit.advise.estimates.steady_flow import clicks, topology_of, views

from recount.advise.workload import EACH_ITS_OWN, Arrivals, sized, workload
from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.topology import stream
from recount.runtime.errors import RecountError

JOINED = topology_of(stream(clicks).join(stream(views), before="5 s", after="5 s", grace="0 s"))
PER_PAGE = topology_of(stream(clicks).select_key(site=col("page")).aggregate(n=count()))


def test_a_bare_number_holds_for_every_topic_and_a_named_one_for_its_own() -> None:
    given = workload(JOINED, rate=["100", "views=20"])
    assert (given.rate_of("clicks"), given.rate_of("views")) == (100, 20)


def test_keys_are_named_as_select_key_or_the_topic_names_them() -> None:
    given = workload(PER_PAGE, keys=["50", "site=7", "user=unique"])
    assert [given.keys_of(name) for name in ("site", "user")] == [7, EACH_ITS_OWN]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rate": ["many"]}, "a number above 0"),
        ({"rate": ["0"]}, "a number above 0"),
        ({"rate": ["inf"]}, "a number above 0"),
        ({"rate": ["orders=5"]}, "one of clicks, views"),
        ({"keys": ["shop=5"]}, "one of user"),
        ({"keys": ["user="]}, "or unique"),
        ({"record_bytes": 0}, "bytes above 0"),
        ({"trigger": "0 s"}, "a duration above 0"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_was_expected(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(RecountError) as refused:
        workload(JOINED, **options)
    assert expected in refused.value.expected
    assert refused.value.remedy


def test_a_hundred_rows_a_second_of_a_hundred_keys_reach_two_thirds_of_them_in_a_second() -> None:
    rows = Arrivals(per_s=100, keys=100)
    assert rows.keys_within(1_000) == pytest.approx(100 * (1 - 1 / math.e))
    assert rows.silence(1_000) == pytest.approx(1 / math.e)
    assert rows.firsts_per_s(1_000) == 50


def test_keys_that_never_come_twice_are_as_many_as_rows() -> None:
    rows = Arrivals(per_s=100, keys=EACH_ITS_OWN)
    assert (rows.keys_within(2_000), rows.silence(2_000), rows.firsts_per_s(2_000)) == (200, 1, 100)


@pytest.mark.parametrize(
    ("size", "said"), [(0, "0 B"), (0.5, "0 B"), (1_023, "1,023 B"), (1_536, "1.5 KiB"), (2.0**60, "1,048,576.0 TiB")]
)
def test_bytes_are_said_in_the_largest_unit_of_which_there_is_one(size: float, said: str) -> None:
    assert sized(size) == said
