"""Night after night a depot is audited from where the last audit ended, also when the log before is gone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from tests.spark.audit.depot import Depot, depot_of

from recount.audit.certificate.certificate_files import load
from recount.audit.night import CertifiedAudit
from recount.declare.columns import BATCH, GENERATION
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1_800)]
"""Streams and audits run for real: minutes where other work shares the machine."""


SINKS = ("tiers", "contacts", "settled", "sold")
"""A table grouped anew, two joined, an outer join of streams, and running totals in the order of event time."""
RECORDS = ("settled", "sold")
"""Those of which no later row replaces another, so that what is wrong stays so."""


@dataclass(frozen=True, kw_only=True)
class Nights:
    """Two honest nights, one in which rows were tampered with, and one after it, audited again when all was mended."""

    first: CertifiedAudit
    second: CertifiedAudit
    whole: CertifiedAudit
    """The second night from the beginning of the log."""
    tampered: CertifiedAudit
    unrepaired: CertifiedAudit
    mended: CertifiedAudit
    lost: set[tuple[str, str, str]]
    doubled: set[tuple[str, str, str]]
    forged: tuple[str, str]


@pytest.fixture(scope="module")
def nights(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    project: Project,
    tmp_path_factory: pytest.TempPathFactory,
) -> Nights:
    depot = depot_of(spark, kafka, project, tmp_path_factory.mktemp("depot"), SINKS)
    depot.a_day(0)
    first = depot.audit()
    depot.a_day(1)
    whole = depot.audit(from_the_beginning=True)
    depot.archive()
    for part in first.findings.accounts:
        depot.expire(part.topic, part.end, part.partition)
    second = depot.audit()
    depot.a_day(2)
    bygone = depot.rows(depot.written("tiers"))[0]
    depot.publish(depot.written("tiers"), bygone)
    victims = {table: last_row(depot, table) for table in RECORDS}
    for table, row in victims.items():
        depot.change(depot.written(table), row, None)
        depot.publish(depot.written(table), row)
    tampered = depot.audit()
    depot.a_day(3)
    unrepaired = depot.audit()
    for table, row in victims.items():
        depot.append(depot.written(table), row.asDict())
    mended = depot.audit()
    keys = {table: str(row[depot.written(table).key]) for table, row in victims.items()}
    return Nights(
        first=first,
        second=second,
        whole=whole,
        tampered=tampered,
        unrepaired=unrepaired,
        mended=mended,
        lost={(f"table outputs/{table}", "lost", key) for table, key in keys.items()},
        doubled={(f"topic {depot.written(table).topic.name}", "duplicated", key) for table, key in keys.items()},
        forged=(f"topic {depot.written('tiers').topic.name}", str(bygone["tier"])),
    )


def last_row(depot: Depot, table: str) -> Row:
    """The last row of the table, of those that nobody else writes in that batch under that key."""
    rows, key = depot.rows(depot.written(table)), depot.written(table).key
    places = [(row[GENERATION], row[BATCH], row[key]) for row in rows]
    return next(row for row, place in zip(reversed(rows), reversed(places), strict=True) if places.count(place) == 1)


def differences(audit: CertifiedAudit) -> set[tuple[str, str, str | None]]:
    return {(one.place, one.verdict, one.key) for one in audit.findings.differences}


def open_findings(audit: CertifiedAudit) -> set[tuple[str, str, str | None]]:
    found = load(audit.certificate)["findings"]["open"]
    return {(one["place"], one["verdict"], one["key"]) for one in found}


def test_an_honest_night_matches_without_the_log_of_the_nights_before(nights: Nights) -> None:
    assert differences(nights.first) == differences(nights.second) == set()
    covers = load(nights.second.certificate)["covers"]
    assert covers["judged_before"]["audit"] == nights.first.findings.audit
    assert nights.second.findings.seed.order == nights.first.findings.cut.order


def test_it_misses_what_the_whole_log_misses(nights: Nights) -> None:
    whole, second = (
        {
            (miss.sink, miss.key, miss.window_start, miss.origin, miss.published, miss.complete, miss.late)
            for miss in one
        }
        for one in (nights.whole.findings.misses, nights.second.findings.misses)
    )
    assert second == whole
    assert len(whole) > len(nights.first.findings.misses)


def test_what_was_tampered_with_is_found_that_night_and_open_until_it_is_mended(nights: Nights) -> None:
    place, key = nights.forged
    found = differences(nights.tampered)
    assert nights.lost | nights.doubled <= found
    assert {(where, who) for where, verdict, who in found - nights.lost - nights.doubled} == {(place, key)}
    assert nights.lost | nights.doubled <= open_findings(nights.unrepaired)


def test_what_was_mended_is_repaired_without_the_log_of_the_nights_before(nights: Nights) -> None:
    assert nights.mended.findings.seed.order == nights.tampered.findings.cut.order
    assert not nights.lost & open_findings(nights.mended)
    assert nights.doubled <= open_findings(nights.mended), "a record on Kafka cannot be taken back"


def test_a_stream_that_stands_still_is_audited_when_the_log_of_its_last_night_has_expired(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path
) -> None:
    depot = depot_of(spark, kafka, project, tmp_path, ["contacts", "settled"])
    depot.a_day(0)
    first = depot.audit()
    for part in first.findings.accounts:
        depot.expire(part.topic, part.end, part.partition)
    second = depot.audit()
    assert load(second.certificate)["batches"] == 0
    depot.a_day(1)
    third = depot.audit()
    assert differences(second) == differences(third) == set()
    assert third.findings.seed.run is not None
    assert third.findings.seed.run.audit == second.findings.audit
