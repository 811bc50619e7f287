"""Tables, outer joins, what waits, what is held back and timers are proved; what is tampered with is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from tests.integration.engine.drivers import committed
from tests.spark.audit.depot import SINKS, Depot, depot_of

from recount.audit.certificate.certificate_files import EXIT_FAILED, load
from recount.audit.expectations.validation import Outcome, validate
from recount.audit.night import CertifiedAudit
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.runtime.errors import Terminal

ALTERED: Mapping[str, Mapping[str, Any]] = {
    "tiers": {"credit": 99},
    "contacts": {"city": "Paris"},
    "settled": {"rate": 9.0},
    "priced": {"tier": "gold"},
    "revenue": {"revenue": Decimal("9.99")},
    "reminders": {"payments": 9},
    "cities": {"city": "PARIS"},
    "sold": {"spent": Decimal("9.99")},
}


@dataclass(frozen=True, kw_only=True)
class Nights:
    """A depot's day, audited as the stream left it; then with a part of it archived, when somebody had tampered."""

    depot: Depot
    honest: CertifiedAudit
    expected: Outcome
    tampered: CertifiedAudit
    victims: Mapping[tuple[str, str], Row]
    unarchived: Terminal
    """What the audit from the archive said before there was one."""


@pytest.fixture(scope="module")
def nights(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    project: Project,
    tmp_path_factory: pytest.TempPathFactory,
) -> Nights:
    depot = depot_of(spark, kafka, project, tmp_path_factory.mktemp("depot"))
    depot.a_day()
    honest = depot.audit()
    expected = validate(spark, depot.settings, depot.topology, honest.findings.audit)
    victims = {key: row for table in SINKS for key, row in tampered_with(depot, table).items()}
    with pytest.raises(Terminal) as unarchived:
        depot.audit("archive")
    depot.archive()
    depot.expire(depot.topic("customers"), 3)
    tampered = depot.audit("auto")
    return Nights(
        depot=depot,
        honest=honest,
        expected=expected,
        tampered=tampered,
        victims=victims,
        unarchived=unarchived.value,
    )


def tampered_with(depot: Depot, table: str) -> dict[tuple[str, str], Row]:
    """The first row lost and one altered that no other replaces, on the topic and in the table; who they were."""
    sink = depot.written(table)
    lost, *others = depot.rows(sink)
    known = Counter(row[sink.key] for row in [lost, *others])
    changed = next(row for row in others if known[row[sink.key]] == 1)
    other = {**changed.asDict(), **ALTERED[table]}
    depot.expire(sink.topic.name, 1)
    depot.change(sink, lost, None)
    depot.publish(sink, other)
    depot.change(sink, changed, other)
    return {(table, "lost"): lost, (table, "altered"): changed}


def test_a_depot_that_did_its_work_matches_in_every_sink(nights: Nights) -> None:
    found = nights.honest.findings
    assert found.differences == ()
    assert found.counts == {"kafka match": 57, "delta match": 57, "completeness kept": 53, "completeness missed": 4}
    dead_lettered = {account.topic: account.dead_lettered for account in found.accounts if account.dead_lettered}
    assert dead_lettered == {nights.depot.topic("addresses"): 1, nights.depot.topic("payments"): 1}


def test_expectations_find_what_the_judge_finds_in_every_sink(nights: Nights) -> None:
    assert (nights.expected.exit_code, nights.expected.disagreements) == (0, []), nights.expected.lines("")
    depot = nights.depot
    found = validate(depot.spark, depot.settings, depot.topology, nights.tampered.findings.audit)
    assert (found.exit_code, found.disagreements) == (EXIT_FAILED, []), found.lines("")


def test_a_plain_value_is_published_as_its_text(nights: Nights) -> None:
    depot = nights.depot
    cities = [
        (record.key(), record.value()) for record in committed(depot.connection, depot.written("cities").topic.name)
    ]
    honest = [(city, city) for city in (b"OSLO", b"BONN", b"KIEL", b"ULM")]
    assert cities == [*honest, (b"OSLO", b"PARIS")], "ROME has expired, the last one is not the stream's"


def test_a_late_order_is_explained_wherever_it_would_have_shown(nights: Nights) -> None:
    depot, misses = nights.depot, nights.honest.findings.misses
    assert all(miss.explained and miss.late_records == 1 for miss in misses)
    assert all(miss.late[0].startswith(f"{depot.topic('orders')}-0@6 ") for miss in misses)
    assert {(miss.sink, miss.key) for miss in misses} == {
        (depot.written("priced").topic.name, "eve"),
        (depot.written("revenue").topic.name, "none"),
        (depot.written("settled").topic.name, "eve"),
        (depot.written("sold").topic.name, "fan"),
    }


def test_one_row_lost_and_one_altered_are_found_in_every_sink_with_a_part_of_the_log_archived(nights: Nights) -> None:
    depot = nights.depot
    found = {(one.place, one.verdict, one.key) for one in nights.tampered.findings.differences}
    expected = set()
    for (table, verdict), row in nights.victims.items():
        sink = depot.written(table)
        for place in (f"topic {sink.topic.name}", f"table outputs/{table}"):
            expected.add((place, verdict, row[sink.key]))
    assert found == expected


@pytest.mark.thorough
def test_what_has_expired_on_kafka_is_not_audited_from_there(nights: Nights) -> None:
    with pytest.raises(Terminal) as refused:
        nights.depot.audit("kafka", from_the_beginning=True)
    assert "--source auto" in str(refused.value)
    stands = load(nights.depot.audit("kafka").certificate)
    assert (stands["batches"], stands["outcome"]) == (0, "violation"), "what is wrong in the tables is still found"


def test_what_has_no_archive_is_not_audited_from_there(nights: Nights) -> None:
    topics = ("addresses", "customers", "orders", "payments")
    assert all(nights.depot.topic(kind) in str(nights.unarchived) for kind in topics)
