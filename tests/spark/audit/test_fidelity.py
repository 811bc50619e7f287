"""A stream that did its work is proved, from Kafka and from the archive alike, and a late record is explained."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition
from tests.spark.audit.conftest import Scene, an_hour_of_orders

from recount.audit.certificate import load, verify_file
from recount.audit.evidence import digests_at_hand
from recount.core.errors import Terminal

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("tiny")]
"""Streams and audits run for real: minutes where other work shares the machine."""


def test_a_stream_that_did_its_work_matches_and_its_late_record_is_explained(scene: Scene) -> None:
    an_hour_of_orders(scene)
    scene.run(max_offsets=40)

    done = scene.audit()

    assert done.findings.differences == ()
    assert [account.records for account in done.findings.accounts] == [61, 61]
    assert done.findings.counts == {
        "kafka match": 30,
        "delta match": 30,
        "completeness kept": 29,
        "completeness missed": 1,
    }
    [miss] = done.findings.misses
    assert (miss.key, miss.late_records, miss.explained) == ("EU", 1, True)
    assert miss.late == (f"{scene.orders}-0@20 +180000 ms",)

    scene.archive()
    again = scene.audit(source="archive", from_the_beginning=True)
    assert again.findings.counts == done.findings.counts
    assert again.findings.accounts == done.findings.accounts
    assert again.findings.misses == done.findings.misses

    # the digests are those of the records and rows, wherever they were read
    digests = load(done.certificate)["digests"]
    assert load(again.certificate)["digests"] == digests
    assert [(one["partition"], one["start"], one["end"], one["records"]) for one in digests["log"]] == [
        (account.partition, account.start, account.end, account.records) for account in done.findings.accounts
    ]
    ranges = {one["partition"]: (one["start"], one["end"]) for one in digests["log"]}
    at_hand = digests_at_hand(scene.connection, scene.orders, ranges)
    assert [found.sha256 for found in at_hand.values()] == [one["sha256"] for one in digests["log"]]
    assert sum(one["records"] for one in digests["published"]) == 30
    assert [(one["table"], one["rows"]) for one in digests["tables"]] == [("outputs/revenue", 30)]

    # so they are where Kafka has lost a part of one partition and all of the other
    admin = scene.connection.admin()
    gone = [TopicPartition(scene.orders, 0, 30), TopicPartition(scene.orders, 1, 61)]
    assert [future.result(15).low_watermark for future in admin.delete_records(gone).values()] == [30, 61]
    with pytest.raises(Terminal, match="have expired"):
        scene.audit(source="kafka", from_the_beginning=True)
    both = scene.audit(from_the_beginning=True)
    assert load(both.certificate)["digests"] == digests
    assert (both.findings.counts, both.findings.accounts) == (done.findings.counts, done.findings.accounts)

    checked = verify_file(both.certificate)
    assert "chain is complete" in checked[-1]
    assert len(checked) == 4
