"""Rows of every kind that grace has left out are corrected once, on Kafka and in Delta, and the next audit says so."""

import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.integration.engine.drivers import committed
from tests.spark.audit.conftest import MINUTE_MS, START_MS
from tests.spark.audit.kiosk import Kiosk, kiosk_of
from tests.statuses import a_status

from recount.audit.carry.delta_frames import frame_at
from recount.audit.carry.store import CORRECTIONS
from recount.audit.compare.correction_claims import COMPLETE_TEXT
from recount.audit.compare.sink_verdicts import SEEN, of_backfills, of_stream, seen_rows
from recount.audit.expectations.validation import Outcome, validate
from recount.audit.night import CertifiedAudit
from recount.backfill.carrying_out import CarryingOut, Repaired
from recount.backfill.corrections_due import corrections_due
from recount.declare.columns import BACKFILL, BACKFILL_NUMBER, IS_NULL
from recount.kafka.leases import Lease
from recount.kafka.transaction import OutputTransaction
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.recompute.frames.duck_database import Database
from recount.runtime.errors import Terminal
from recount.serve.answer import answer
from recount.serve.asked_sink import AskedSink
from recount.serve.question import MOST_ROWS, Question

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(2_400)]
"""Streams and audits run for real: minutes where other work shares the machine."""

DOCS = Path(__file__).parents[3] / "docs" / "audit.md"
Said = tuple[str, tuple[float, ...] | None, str | None, str | None]


@dataclass(frozen=True, kw_only=True)
class Nights:
    """Nights of a kiosk, each audited from where the one before ended.

    After the first somebody alters what is to be corrected, and restores it; a backfill is killed before it publishes,
    and repeated. Then somebody forges a correction, gil's order comes too late, fay orders again; a backfill is killed,
    and the stream goes on before the next. Of what the first backfill published, somebody publishes a row again after
    the third night, and changes one in Delta at last.
    """

    kiosk: Kiosk
    missed: CertifiedAudit
    refused_as_altered: Terminal
    while_it_runs: list[tuple[str, str | None]]
    repeated: Repaired
    again: Repaired
    repaired: CertifiedAudit
    refused: Terminal
    gone_on: Repaired
    left: list[tuple[str, str | None]]
    quiet: CertifiedAudit
    doubled: CertifiedAudit
    expected: Outcome
    altered: CertifiedAudit


@pytest.fixture(scope="module")
def nights(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    project: Project,
    tmp_path_factory: pytest.TempPathFactory,
) -> Nights:
    kiosk = kiosk_of(spark, kafka, project, tmp_path_factory.mktemp("kiosk"))
    kiosk.a_day()
    missed = kiosk.audit()
    refused_as_altered = refused_for_an_altered_row(kiosk)
    while_it_runs = at_work(kiosk)
    killed_before_it_publishes(kiosk)
    repeated, again = backfill(kiosk).run(), backfill(kiosk).run()

    forge_on_kafka(kiosk)
    kiosk.orders(("gil", 8), ("fay", 61))
    kiosk.an_hour_later(2)
    repaired = kiosk.audit()
    killed_before_it_publishes(kiosk)
    refused = refused_for_a_forged_row(kiosk)
    kiosk.an_hour_later(3)
    gone_on = backfill(kiosk).run()
    left = [(one.identity.written.table, one.key) for one in backfill(kiosk).due.corrections]

    quiet = kiosk.audit()
    publish_again(kiosk)
    kiosk.an_hour_later(4)
    doubled = kiosk.audit()
    expected = validate(spark, kiosk.settings, kiosk.topology, doubled.findings.audit)
    visits = DeltaTable.forPath(spark, kiosk.tables.corrections("visits"))
    visits.update((F.col("__key") == "ada") & (F.col("orders") == 3), {"orders": F.lit(4)})
    altered = kiosk.audit()
    visits.update((F.col("__key") == "ada") & (F.col("orders") == 4), {"orders": F.lit(3)})
    return Nights(
        kiosk=kiosk,
        missed=missed,
        refused_as_altered=refused_as_altered,
        while_it_runs=while_it_runs,
        repeated=repeated,
        again=again,
        repaired=repaired,
        refused=refused,
        gone_on=gone_on,
        left=left,
        quiet=quiet,
        doubled=doubled,
        expected=expected,
        altered=altered,
    )


def backfill(kiosk: Kiosk) -> CarryingOut:
    due = corrections_due(kiosk.tables, kiosk.topology)
    return CarryingOut(settings=kiosk.settings, due=due)


def at_work(kiosk: Kiosk) -> list[tuple[str, str | None]]:
    """Table and key of what a backfill would correct while a driver is at work."""
    due = backfill(kiosk)  # computed first: a driver that says nothing for a minute counts as gone
    lease = Lease.acquire(kiosk.connection, kiosk.topology.name)
    said = a_status(stream=kiosk.topology.name, lease_epoch=lease.epoch, heartbeat_ms=time.time_ns() // 1_000_000)
    lease.publish(said)
    ready = [(one.identity.written.table, one.key) for one in due.ready()]
    lease.publish(a_status(stream=kiosk.topology.name, lease_epoch=lease.epoch, state="stopped"))
    lease.release()
    return ready


def killed_before_it_publishes(kiosk: Kiosk) -> None:
    """A backfill that ends between Delta and Kafka."""

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(OutputTransaction, "commit_once", killed)
        with pytest.raises(KeyboardInterrupt):
            backfill(kiosk).run()


def forge_on_kafka(kiosk: Kiosk) -> None:
    """A correction of bob's payment that no backfill has made, on the topic only."""
    settled = kiosk.written("settled")
    bob = next(row for row in kiosk.rows(settled) if row["__key"] == "bob")
    kiosk.publish(settled, {**bob.asDict(), "method": "cash"}, origin="backfill")


def publish_again(kiosk: Kiosk) -> None:
    """The correction of cy's payment, as the first backfill has published it."""
    settled = kiosk.written("settled")
    rows = kiosk.spark.read.format("delta").load(kiosk.tables.corrections("settled"))
    [cy] = rows.where((F.col("__key") == "cy") & ~F.col(IS_NULL)).collect()
    kiosk.publish(settled, cy.asDict(), origin="backfill")


def wrong(audit: CertifiedAudit) -> set[tuple[str, str, str | None]]:
    """Kind, verdict and key of what the audit found."""
    return {(one.kind, one.verdict, one.key) for one in audit.findings.differences}


def refused_for_an_altered_row(kiosk: Kiosk) -> Terminal:
    """Somebody writes to what the audit has kept of a row that it missed; the table is restored."""
    kept = DeltaTable.forPath(kiosk.spark, kiosk.tables.audit(kiosk.topology.name, CORRECTIONS))
    version = kept.history(1).head().version
    kept.update(set={COMPLETE_TEXT: F.regexp_replace(COMPLETE_TEXT, '"orders":[0-9]+', '"orders":7')})
    with pytest.raises(Terminal) as refused:
        backfill(kiosk).run()
    kept.restoreToVersion(version)
    return refused.value


def refused_for_a_forged_row(kiosk: Kiosk) -> Terminal:
    """What a backfill says while somebody has changed what the one before left unpublished; it is changed back then."""
    table = DeltaTable.forPath(kiosk.spark, kiosk.tables.corrections("visits"))
    number = table.toDF().agg(F.max(BACKFILL_NUMBER)).first()[0]  # type: ignore[index]
    mine = F.col(BACKFILL_NUMBER) == number
    table.update(mine, {"orders": F.col("orders") + 1})
    with pytest.raises(Terminal) as refused:
        backfill(kiosk).run()
    table.update(mine, {"orders": F.col("orders") - 1})
    return refused.value


def published(kiosk: Kiosk, table: str) -> list[Said]:
    """Key, window in minutes, places without the topics' names, and value of each correction on the topic."""
    found = []
    for record in committed(kiosk.connection, kiosk.written(table).topic.name):
        headers = dict(record.headers())
        if headers["recount-origin"] == b"backfill":
            window = headers.get("recount-window")
            source = headers.get("recount-source")
            found.append(
                (
                    record.key().decode(),
                    None if window is None else tuple((int(at) - START_MS) / MINUTE_MS for at in window.split(b"/")),
                    None if source is None else re.sub(r"(orders|payments)-\w+-", r"\1-", source.decode()),
                    record.value() and record.value().decode(),
                )
            )
    return found


def test_every_row_that_late_records_would_have_made_otherwise_is_missed(nights: Nights) -> None:
    found = nights.missed.findings
    assert found.differences == ()
    assert found.counts["completeness missed"] == 9
    assert all(miss.explained for miss in found.misses)


def test_sessions_that_a_late_record_joins_are_deleted_before_the_one_that_they_are(nights: Nights) -> None:
    first = published(nights.kiosk, "visits")[:4]
    assert [(key, window, value is None) for key, window, _, value in first] == [
        ("ada", (1, 1), True),
        ("ada", (6, 6), True),
        ("ada", (1, 6), False),
        ("fay", (7, 7), False),
    ]
    ada = f'{{"window_start":{START_MS + MINUTE_MS},"window_end":{START_MS + 6 * MINUTE_MS},"orders":3,"spent":30.75}}'
    assert first[2][3] == ada


def test_a_pair_that_was_missed_is_published_and_the_row_that_had_left_alone_taken_back(nights: Nights) -> None:
    by_cy = [(source, value) for key, _, source, value in published(nights.kiosk, "settled") if key == "cy"]
    pair = ("orders-0@1+payments-0@2", '{"method":"card","item":"cy\'s","amount":10.25}')
    assert by_cy == [("orders-0@1", None), pair, pair], "the last one is what somebody published again"


def test_a_backfill_that_is_repeated_publishes_what_it_had_written_and_nothing_twice(nights: Nights) -> None:
    audit = nights.missed.findings.audit
    assert (nights.repeated.corrections, nights.repeated.published) == (0, (audit,))
    assert (nights.again.corrections, nights.again.published) == (0, ())


def test_the_next_audit_says_that_all_is_repaired(nights: Nights) -> None:
    counts = nights.repaired.findings.counts
    assert counts["completeness repaired"] == 9, "of one of them the stream has written a newer row since"
    assert {name for name in counts if not name.startswith("completeness")} <= {
        "kafka match",
        "kafka expired",
        "delta match",
    }


def test_rows_of_a_table_are_left_while_a_driver_is_at_work(nights: Nights) -> None:
    assert ("settled", "fay") in nights.while_it_runs
    assert {table for table, _ in nights.while_it_runs} == {"visits", "settled"}


def test_a_correction_that_no_backfill_has_made_is_a_violation(nights: Nights) -> None:
    [forged] = nights.repaired.findings.differences
    assert (forged.kind, forged.verdict, forged.key) == ("correction", "extra", "bob")


def test_what_the_stream_writes_later_takes_the_place_of_a_correction(nights: Nights) -> None:
    misses = {(miss.sink.split("-")[0], miss.key) for miss in nights.repaired.findings.misses}
    assert misses == {("board", "gil"), ("settled", "gil"), ("visits", "gil")}, "fay's row of the board is right again"


def test_rows_that_an_audit_has_kept_and_somebody_has_altered_are_not_published(nights: Nights) -> None:
    stream = nights.kiosk.topology.name
    assert f"other rows in table audits/{stream}/corrections" in str(nights.refused_as_altered)


def test_a_row_that_somebody_has_put_among_those_to_be_published_is_refused(nights: Nights) -> None:
    assert "follow from no audit" in str(nights.refused)


def test_unpublished_corrections_of_a_table_are_taken_back_when_the_stream_has_gone_on(nights: Nights) -> None:
    kiosk, audit = nights.kiosk, nights.repaired.findings.audit
    assert (nights.gone_on.corrections, nights.gone_on.published) == (0, (audit,))
    assert "gil" not in {key for key, *_ in published(kiosk, "board")}
    board = kiosk.spark.read.format("delta").load(kiosk.tables.corrections("board"))
    assert board.where(F.col(BACKFILL) == audit).isEmpty()
    assert nights.left == [("board", "gil")]


def test_an_audit_that_goes_on_knows_what_the_ones_before_read_of_corrections(nights: Nights) -> None:
    found = nights.quiet.findings
    assert found.seed.order == nights.repaired.findings.cut.order
    assert wrong(nights.quiet) == {("correction", "extra", "bob")}, "what was forged stays found, all else holds"
    assert found.counts["completeness repaired"] == 11, "and gil's visit and order"
    assert [(miss.sink.split("-")[0], miss.key) for miss in found.misses] == [("board", "gil")]


def test_a_published_correction_that_comes_again_is_found_though_its_row_was_repaired_long_ago(nights: Nights) -> None:
    found = nights.doubled.findings
    assert found.seed.order == nights.quiet.findings.cut.order
    assert wrong(nights.doubled) == {("correction", "extra", "bob"), ("correction", "duplicated", "cy")}
    assert found.counts["completeness repaired"] == 11


def test_great_expectations_judges_corrections_as_the_audit_does(nights: Nights) -> None:
    outcome = nights.expected
    assert outcome.disagreements == []
    assert {suite for suite in outcome.suites if outcome.told(suite) != "holds"} == {"reconciliation"}


def test_a_published_correction_that_is_changed_in_delta_is_found_by_judging_all_again(nights: Nights) -> None:
    found = nights.altered.findings
    assert found.seed.run is None
    assert ("correction", "altered", "ada") in wrong(nights.altered)
    assert ("correction", "duplicated", "cy") in wrong(nights.altered)


def test_an_answer_has_the_rows_that_the_audit_says_readers_see(nights: Nights, database: Database) -> None:
    kiosk, corrected = nights.kiosk, 0
    for node in kiosk.topology.written:
        sink, path = AskedSink(kiosk.topology, node), kiosk.tables.corrections(node.table)
        written = of_stream(frame_at(database, kiosk.tables.output(node.table)), sink.identity)
        if DeltaTable.isDeltaTable(kiosk.spark, path):
            written = written.union(of_backfills(frame_at(database, path), sink.identity))
        entries = [entry for one in seen_rows(written, sink.identity).rows() for entry in one[SEEN]]
        rows = [entry["row"] for entry in entries if entry["row"] is not None]
        found = answer(kiosk.tables, Question(sink=sink, limit=MOST_ROWS), time.time_ns() // 1_000_000)
        answered = Counter(tuple((name, row[name]) for name in sorted(sink.fields)) for row in found.rows)
        assert answered == Counter(tuple(sorted(row.items())) for row in rows), sink.name
        corrected += sum(row[BACKFILL_NUMBER] is not None for row in found.rows)
    assert corrected > 3


def test_the_query_of_the_docs_reads_what_the_whole_log_gives(nights: Nights) -> None:
    kiosk = nights.kiosk
    [query] = re.findall(r"```sql\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    for view, path in (("outputs", kiosk.tables.output("visits")), ("corrections", kiosk.tables.corrections("visits"))):
        kiosk.spark.read.format("delta").load(path).createOrReplaceTempView(view)
    rows = kiosk.spark.sql(query).where(F.col("__key").isin("ada", "fay", "gil")).collect()
    seen = {(row["__key"], row.window_start - START_MS, row.window_end - START_MS, row.orders) for row in rows}
    assert {(key, start / MINUTE_MS, end / MINUTE_MS, orders) for key, start, end, orders in seen} == {
        ("ada", 1, 6, 3),
        ("fay", 7, 7, 1),
        ("fay", 61, 61, 1),
        ("gil", 8, 8, 1),
    }
