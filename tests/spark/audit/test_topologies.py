"""A topology of joins, lookups and sessions is proved; what is tampered with is found; what came late is explained."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from tests.spark.audit.conftest import MINUTE_MS, START_MS
from tests.spark.audit.shop import Shop, shop_of

from recount.audit.carry.store import PLANS
from recount.audit.certificate.certificate_files import EXIT_FAILED, load, summary_file, verify_file
from recount.audit.expectations.validation import FAILED, Outcome, validate
from recount.audit.night import CertifiedAudit
from recount.audit.repeated_audit import NotTheSame, again
from recount.backfill.backfill_commands import backfill_rows
from recount.declare.columns import ORIGIN
from recount.declare.topology import Written
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project

DAY_MS = 1_440 * MINUTE_MS


@dataclass(frozen=True, kw_only=True)
class Nights:
    """A shop's day with one late order, audited as the stream left it, and again when somebody had tampered with it."""

    shop: Shop
    honest: CertifiedAudit
    expected: Outcome
    tampered: CertifiedAudit
    victims: Mapping[tuple[str, str], Row]


@pytest.fixture(scope="module")
def nights(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    project: Project,
    tmp_path_factory: pytest.TempPathFactory,
) -> Nights:
    shop = shop_of(spark, kafka, project, tmp_path_factory.mktemp("shop"))
    shop.a_day(late=True)
    honest = shop.audit()
    expected = validate(spark, shop.settings, shop.topology, honest.findings.audit)
    victims = {
        **tampered_with(shop, shop.paid, altered={"rate": 9.0}, moved=_other_origin),
        **tampered_with(shop, shop.visits, altered={"orders": 9}, moved=_next_day),
    }
    return Nights(shop=shop, honest=honest, expected=expected, tampered=shop.audit(), victims=victims)


def tampered_with(shop: Shop, sink: Written, *, altered: Mapping[str, Any], moved: Any) -> dict[tuple[str, str], Row]:
    """One row lost, one doubled, one altered, one invented, on the topic and in the table; who they were."""
    lost, doubled, changed, model = shop.rows(sink)[:4]
    invented = Row(**{**model.asDict(), **moved(model)})
    shop.expire(sink.topic.name, 1)
    shop.change(sink, lost, None)
    for row in (doubled, invented):
        shop.publish(sink, row.asDict())
        shop.append(sink, row.asDict())
    other = {**changed.asDict(), **altered}
    shop.publish(sink, other)
    shop.change(sink, changed, other)
    named = {"lost": lost, "duplicated": doubled, "altered": changed, "extra": invented}
    return {(sink.table, verdict): row for verdict, row in named.items()}


def _other_origin(row: Row) -> dict[str, Any]:
    return {ORIGIN: row[ORIGIN].replace("@", "@9")}


def _next_day(row: Row) -> dict[str, Any]:
    return {"window_start": row.window_start + DAY_MS, "window_end": row.window_end + DAY_MS}


def test_a_topology_that_did_its_work_matches_in_both_sinks(nights: Nights) -> None:
    found = nights.honest.findings
    assert found.differences == ()
    assert found.counts == {
        "kafka match": 14,
        "delta match": 14,
        "completeness kept": 11,
        "completeness missed": 3,
    }
    assert sum(account.records for account in found.accounts) == 27
    assert "number 1, match" in verify_file(nights.honest.certificate)[0]


def test_a_late_record_is_a_grace_miss_that_the_late_ledger_explains(nights: Nights) -> None:
    shop, misses = nights.shop, nights.honest.findings.misses
    assert all(miss.explained and miss.key == "eve" and miss.late_records == 1 for miss in misses)
    assert all(miss.late[0].startswith(f"{shop.topic('orders')}-0@") for miss in misses)
    assert [(miss.sink, miss.window_start, miss.window_end) for miss in misses] == [
        (shop.paid.topic.name, None, None),
        (shop.visits.topic.name, _at(6), _at(6)),
        (shop.visits.topic.name, _at(6), _at(6.5)),
    ]
    assert misses[0].published is None and f"+{shop.topic('payments')}-0@4" in str(misses[0].origin)


def test_whatever_is_done_to_a_row_of_either_sink_is_found_and_named(nights: Nights) -> None:
    found = {
        (one.place, one.verdict, one.key, one.window_start, one.origin) for one in nights.tampered.findings.differences
    }
    expected = set()
    for (table, verdict), row in nights.victims.items():
        sink = nights.shop.paid if table == "paid" else nights.shop.visits
        start = row.window_start if table == "visits" else None
        for place in (f"topic {sink.topic.name}", f"table outputs/{table}"):
            expected.add((place, verdict, row["__key"], start, row[ORIGIN]))
    assert found == expected


def test_expectations_find_what_the_judge_finds_in_sinks_of_each_kind(nights: Nights) -> None:
    assert (nights.expected.exit_code, nights.expected.disagreements) == (0, []), nights.expected.lines("")
    shop = nights.shop
    found = validate(shop.spark, shop.settings, shop.topology, nights.tampered.findings.audit)
    assert (found.exit_code, found.disagreements) == (EXIT_FAILED, []), found.lines("")
    assert {suite for suite in found.suites if found.told(suite) == FAILED} == {"outputs-visits", "reconciliation"}


def test_the_audit_of_any_topology_is_repeated_from_its_certificate_and_says_what_was_changed(nights: Nights) -> None:
    """Issue 12, 4: the tampered night comes out again; of the honest one topics and tables differ, the log does not."""
    shop = nights.shop
    assert again(shop.spark, shop.settings, shop.topology, load(nights.tampered.certificate))
    with pytest.raises(NotTheSame) as changed:
        again(shop.spark, shop.settings, shop.topology, load(nights.honest.certificate))
    sections = {one.split(" ")[0].rstrip(":") for one in changed.value.differing}
    assert {"published", "tables", "verdicts"} <= sections
    assert "log" not in sections


def test_a_dry_run_says_how_many_rows_would_be_corrected_and_corrects_none(nights: Nights) -> None:
    shop = nights.shop
    backfill_rows(shop.settings, shop.topology, nights.honest.findings.audit, dry_run=True)
    said = json.loads(summary_file(shop.settings, shop.topology.name).read_text(encoding="utf-8"))
    assert said == {"audit": nights.tampered.findings.audit, "changes": 3, "unpublished": 0}
    planned = shop.spark.read.format("delta").load(shop.tables.audit(shop.topology.name, PLANS)).collect()
    assert {(row.key, row.now == "nothing", row.corrected == "nothing", row.revision) for row in planned} == {
        ("eve", True, False, 0),
        ("eve", False, True, 1),
    }
    assert not any(Path(shop.tables.corrections(table)).exists() for table in ("paid", "visits"))


def _at(minute: float) -> int:
    return START_MS + round(minute * MINUTE_MS)
