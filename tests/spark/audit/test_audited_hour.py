"""One hour of orders, audited as it was, from the archive, with a part of the log gone, and when it was tampered with.

The audits follow one another on one scene; the tests read what they said.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession
from tests.spark.audit.conftest import Scene, an_hour_of_orders, scene_of

from recount.audit.audit_session import suit
from recount.audit.certificate.certificate_files import (
    EXIT_DISAGREED,
    EXIT_FAILED,
    expectations_page_of,
    load,
    outcome_of,
    verify_file,
)
from recount.audit.compare import committed
from recount.audit.expectations import validation
from recount.audit.expectations.validation import FAILED, HOLDS, Outcome, data_docs, validate
from recount.audit.findings.finding_register import Findings
from recount.audit.integrity import evidence
from recount.audit.integrity.evidence import digests_at_hand
from recount.audit.night import CertifiedAudit
from recount.certificate.finding import Difference
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.profile.tamper import KINDS, Mutation, mutate
from recount.runtime.errors import Terminal


@dataclass(frozen=True, kw_only=True)
class Hour:
    """The audits of the hour, in their order."""

    scene: Scene
    honest: CertifiedAudit
    expected: Outcome
    suited: list[int]
    """For how many offsets Great Expectations prepared its session, each time."""
    archived: CertifiedAudit
    at_hand: Mapping[int, Any]
    """Digests of the log as Kafka had it, by partition."""
    expired: Terminal
    both: CertifiedAudit
    mutations: Mapping[str, Mutation]
    tampered: CertifiedAudit
    found: Outcome
    parts: Findings
    """The tampered hour again, of which little fits at hand."""


@pytest.fixture(scope="module")
def hour(spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path_factory: pytest.TempPathFactory) -> Hour:
    name = uuid.uuid4().hex[:8]
    scene = scene_of(spark, kafka, project, lambda kind: f"hour-{name}-{kind}", tmp_path_factory.mktemp("hour"))
    an_hour_of_orders(scene)
    scene.run(max_offsets=40)
    honest = scene.audit()
    suited: list[int] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(validation, "suit", lambda session, offsets: suited.append(offsets) or suit(session, offsets))
        expected = validate(scene.session, scene.settings, scene.topology, honest.findings.audit)

    scene.archive()
    archived = scene.audit(source="archive", from_the_beginning=True)
    log = load(honest.certificate)["digests"]["log"]
    ranges = {one["partition"]: (one["start"], one["end"]) for one in log}
    at_hand = digests_at_hand(scene.connection, scene.orders, ranges)
    expire_all_but_some(scene)
    with pytest.raises(Terminal, match="have expired") as expired:
        scene.audit(source="kafka", from_the_beginning=True)
    both = scene.audit(from_the_beginning=True)

    mutations = {kind: mutate(scene.session, scene.settings, scene.topology, kind) for kind in KINDS}
    append_again(scene, mutations["duplicate"])
    tampered = scene.audit(from_the_beginning=True)
    found = validate(scene.session, scene.settings, scene.topology, tampered.findings.audit)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(evidence, "RECORDS_AT_HAND", 3)
        patched.setattr(committed, "RECORDS_AT_HAND", 0)
        parts = scene.audit(from_the_beginning=True).findings
    return Hour(
        scene=scene,
        honest=honest,
        expected=expected,
        suited=suited,
        archived=archived,
        at_hand=at_hand,
        expired=expired.value,
        both=both,
        mutations=mutations,
        tampered=tampered,
        found=found,
        parts=parts,
    )


def expire_all_but_some(scene: Scene) -> None:
    """Kafka loses a part of one partition and all of the other."""
    gone = [TopicPartition(scene.orders, 0, 30), TopicPartition(scene.orders, 1, 61)]
    deleted = scene.connection.admin().delete_records(gone)
    assert [future.result(15).low_watermark for future in deleted.values()] == [30, 61]


def append_again(scene: Scene, victim: Mutation) -> None:
    """The victim's row, to the output table: its expectations see tables only."""
    path = scene.tables.output("revenue")
    rows = scene.session.read.format("delta").load(path)
    mine = rows.where((rows.region == victim.key) & (rows.window_start == victim.window_start))
    mine.localCheckpoint().write.format("delta").mode("append").save(path)


def test_a_stream_that_did_its_work_matches_and_its_late_record_is_explained(hour: Hour) -> None:
    found = hour.honest.findings
    assert found.differences == ()
    assert [account.records for account in found.accounts] == [61, 61]
    assert found.counts == {
        "kafka match": 30,
        "delta match": 30,
        "completeness kept": 29,
        "completeness missed": 1,
    }
    [miss] = found.misses
    assert (miss.key, miss.late_records, miss.explained) == ("EU", 1, True)
    assert miss.late == (f"{hour.scene.orders}-0@20 +180000 ms",)


def test_the_archive_proves_what_kafka_proves(hour: Hour) -> None:
    found, honest = hour.archived.findings, hour.honest.findings
    assert (found.counts, found.accounts, found.misses) == (honest.counts, honest.accounts, honest.misses)


def test_the_digests_are_those_of_the_records_and_rows_wherever_they_were_read(hour: Hour) -> None:
    digests = load(hour.honest.certificate)["digests"]
    assert load(hour.archived.certificate)["digests"] == digests
    assert [(one["partition"], one["start"], one["end"], one["records"]) for one in digests["log"]] == [
        (account.partition, account.start, account.end, account.records) for account in hour.honest.findings.accounts
    ]
    assert [found.sha256 for found in hour.at_hand.values()] == [one["sha256"] for one in digests["log"]]
    assert sum(one["records"] for one in digests["published"]) == 30
    assert [(one["table"], one["rows"]) for one in digests["tables"]] == [("outputs/revenue", 30)]


def test_what_kafka_has_lost_is_read_from_the_archive_and_never_left_out(hour: Hour) -> None:
    assert "have expired" in str(hour.expired)
    found, honest = hour.both.findings, hour.honest.findings
    assert load(hour.both.certificate)["digests"] == load(hour.honest.certificate)["digests"]
    assert (found.counts, found.accounts) == (honest.counts, honest.accounts)
    checked = verify_file(hour.both.certificate)
    assert "chain is complete" in checked[-1]
    assert len(checked) == 4


def test_expectations_hold_for_an_honest_night_and_its_page_shows_them(hour: Hour) -> None:
    scene, honest, outcome = hour.scene, hour.honest.findings.audit, hour.expected
    read, written = hour.suited
    assert read == 122, "a session for few records looks at many of the raw log on one core"
    assert written < read
    assert outcome.exit_code == 0, outcome.lines("")
    suites = ("raw_log", "batch_ledger", "outputs-revenue", "reconciliation")
    assert {suite: outcome.told(suite) for suite in outcome.suites} == dict.fromkeys(suites, HOLDS)
    assert data_docs(scene.settings.reports).exists()
    page = expectations_page_of(scene.settings.reports, scene.topology.name, honest).read_text()
    for text in (
        "<code>revenue</code></td>\n<td>decimal(38, 2), as the sink declares it.",
        f"<h1>{scene.topology.name}, ",
    ):
        assert text in page
    assert "http" not in page and "<script" not in page
    kept = json.loads(outcome_of(scene.settings.reports, scene.topology.name, honest).read_text())
    assert (kept["exit_code"], kept["disagreements"]) == (0, [])


def test_what_great_expectations_alone_finds_is_a_disagreement(hour: Hour) -> None:
    scene, honest = hour.scene, hour.honest.findings.audit
    rewritten = scene.rewrite_kept(honest, {"kafka": "array('other')"}, "key = 'EU'")
    outcome = validate(scene.session, scene.settings, scene.topology, honest)
    assert outcome.exit_code == EXIT_DISAGREED
    assert [line.partition(":")[0] for line in outcome.disagreements] == ["kafka", "kafka values"]
    assert f"found {rewritten}, the audit's judge 0" in outcome.disagreements[0]


def test_every_mutation_of_an_output_is_found_and_named(hour: Hour) -> None:
    """The prover is proved: every kind of tampering is found, by its right name, and nothing else is."""
    findings = hour.tampered.findings
    assert findings.outcome == "violation"
    found, causes = set(), {}
    for difference in findings.differences:
        assert difference.kind == "output", difference
        causes[kind_of(difference, hour.mutations), difference.verdict] = difference
        found.add((kind_of(difference, hour.mutations), difference.verdict, difference.place.split()[0]))
    assert found == {
        ("duplicate", "duplicated", "topic"),
        ("duplicate", "duplicated", "table"),
        ("loss", "lost", "table"),
        ("alter", "altered", "topic"),
        ("alter", "altered", "table"),
        ("extra", "extra", "topic"),
        ("extra", "extra", "table"),
        ("replay", "altered", "topic"),
        ("replay", "altered", "table"),
        ("boundary", "extra", "topic"),
        ("boundary", "extra", "table"),
        ("boundary", "lost", "table"),
    }
    assert causes["replay", "altered"].cause == "batch 0/0 is counted twice"
    assert causes["replay", "altered"].evidence[-1].startswith("batch 0/0 read ")
    assert "moved by 1 ms from the window that starts at" in causes["boundary", "extra"].cause
    assert causes["duplicate", "duplicated"].cause == "one revision was written 2 times"


def kind_of(difference: Difference, mutations: Mapping[str, Mutation]) -> str:
    """The mutation whose victim the difference is about; the rogue result of ``extra`` lies far from its victim."""
    for kind, mutation in mutations.items():
        bounds = (mutation.window_start, mutation.window_start + 1)
        if mutation.key == difference.key and difference.window_start in bounds:
            return kind
    return "extra"


def test_an_audit_that_reads_topics_by_spark_says_what_one_says_that_reads_them_here(hour: Hour) -> None:
    parts, whole = hour.parts, hour.tampered.findings
    assert (parts.counts, parts.differences, parts.misses) == (whole.counts, whole.differences, whole.misses)
    assert parts.chart and parts.chart.series and (parts.chart, parts.accounts) == (whole.chart, whole.accounts)


def test_great_expectations_finds_the_mutations_by_rules_of_its_own_and_says_where_they_were_covered_up(
    hour: Hour,
) -> None:
    scene, audit = hour.scene, hour.tampered.findings.audit
    assert (hour.found.exit_code, hour.found.disagreements) == (EXIT_FAILED, []), hour.found.lines("")
    assert {suite: hour.found.told(suite) for suite in hour.found.suites} == {
        "raw_log": HOLDS,
        "batch_ledger": HOLDS,
        "outputs-revenue": FAILED,
        "reconciliation": FAILED,
    }
    scene.rewrite_kept(audit, {name: name.replace("kafka", "expected") for name in ("kafka", "kafka_doubles")}, "true")
    outcome = validate(scene.session, scene.settings, scene.topology, audit)
    assert outcome.exit_code == EXIT_DISAGREED
    assert any(line.startswith("kafka: Great Expectations found ") for line in outcome.disagreements)
