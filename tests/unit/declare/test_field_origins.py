"""Of which fields of which topics each field of a result is made, and what decides about its rows."""

from __future__ import annotations

import doctest

import pytest

from recount.declare.operators import keys_and_fields
from recount.declare.operators.keys_and_fields import Origins, origins
from recount.declare.registry import declared

SHOP = declared()


def made_of(stream: str, topic: str) -> Origins:
    topology = SHOP.topologies[stream]
    [sink] = [written for written in topology.written if written.topic.name == topic]
    return origins(topology)[sink]


def test_the_example_is_what_happens() -> None:
    outcome = doctest.testmod(keys_and_fields)
    assert (outcome.attempted > 3, outcome.failed) == (True, 0)


@pytest.mark.parametrize(
    ("stream", "topic", "field", "places"),
    [
        ("high-value-orders", "high-value-orders", "amount", {("orders", "amount")}),
        ("high-value-orders", "vip-orders", "vip", set()),
        ("enriched-orders", "enriched-orders", "amount_tier", {("orders", "amount")}),
        ("customer-stats", "customer-stats", "count", set()),
        ("customer-stats", "customer-stats", "total", {("orders", "amount")}),
        ("enriched-orders-by-customer", "enriched-orders-by-customer", "customer_name", {("customers", "name")}),
        (
            "enriched-orders-by-customer",
            "enriched-orders-by-customer",
            "within_credit_limit",
            {("customers", "credit_limit"), ("orders", "amount")},
        ),
        ("order-balances", "order-balances", "paid", {("orders", "amount"), ("payments", "amount")}),
        ("departed-users", "departed-users", "views", {("page-views", "user_id"), ("page-views", "page")}),
        (
            "section-visits",
            "visits",
            "user_id",
            {("click-events", "user_id"), ("page-views", "user_id")},
        ),
    ],
    ids=["passed on", "constant", "expression", "count", "sum", "join", "both sides", "cogroup", "processor", "merge"],
)
def test_a_field_is_made_of_these(stream: str, topic: str, field: str, places: set[tuple[str, str]]) -> None:
    assert made_of(stream, topic).fields[field] == places


@pytest.mark.parametrize(
    ("stream", "topic", "places"),
    [
        ("enriched-orders", "enriched-orders", set()),
        ("high-value-orders", "vip-orders", {("orders", "amount")}),
        ("revenue-by-region", "windowed-revenue", {("orders", "region")}),
        ("orders-deduplicated", "orders-deduplicated", {("orders", "order_id")}),
        ("matched-orders", "matched-orders", {("orders", "order_id"), ("payments", "order_id")}),
        ("departed-users", "departed-users", {("page-views", "user_id"), ("page-views", "page")}),
    ],
    ids=["every record", "filter", "group", "deduplication", "join", "processor"],
)
def test_rows_are_decided_by_these(stream: str, topic: str, places: set[tuple[str, str]]) -> None:
    assert made_of(stream, topic).rows == places


def test_the_key_of_an_outer_join_is_that_of_either_side() -> None:
    outer = made_of("customer-accounts", "customer-accounts-outer")
    inner = made_of("customer-accounts", "customer-accounts")
    assert outer.fields["__key"] == {("customers", "customer_id"), ("users", "user_id")}
    assert inner.fields["__key"] == {("customers", "customer_id")}
