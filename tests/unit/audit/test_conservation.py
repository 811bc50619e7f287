"""Every offset has one fate, and the ledger must tell the same."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from tests.batch_proofs import a_proof

from recount.audit.compare.conservation import GapPass, conservation_differences
from recount.audit.cut.audited_ledger import Ledger
from recount.certificate.finding import PartitionAccount
from recount.recompute.single_recompute import PartitionTotals
from recount.tables.ledger import BatchProof, PartitionProof

FATES = {"counted": 8, "late": 1, "filtered": 0, "null_key": 0, "dead_lettered": 1}
ACCOUNT = PartitionAccount(topic="orders", partition=0, start=0, end=12, control=2, stream_time_ms=5, **FATES)
TOTALS = PartitionTotals(partition=0, start=0, end=12, records=10, stream_time_ms=5, **FATES)
CLAIM = PartitionProof(topic="orders", partition=0, start=0, end=12, records=10, stream_time_ms=5, **FATES)


def ledger(*claims: PartitionProof) -> Ledger:
    def proof(number: int, claim: PartitionProof) -> BatchProof:
        return a_proof(number, claim, frontier_ms=5)

    return Ledger(tuple(proof(number, claim) for number, claim in enumerate(claims)))


def test_offsets_that_are_all_explained_make_no_difference() -> None:
    assert conservation_differences([ACCOUNT], [TOTALS], ledger(CLAIM)) == []


def test_an_offset_without_a_fate_is_unaccounted() -> None:
    [difference] = conservation_differences([replace(ACCOUNT, control=1)], [TOTALS], ledger(CLAIM))
    assert (difference.verdict, difference.evidence) == ("unaccounted", ("orders-0@[0, 12)",))


def test_the_fates_of_all_batches_together_must_be_the_recomputed_ones() -> None:
    first = replace(CLAIM, end=6, records=5, counted=5, late=0, dead_lettered=0, stream_time_ms=3)
    second = replace(CLAIM, start=6, records=5, counted=3, late=1, dead_lettered=1)
    assert conservation_differences([ACCOUNT], [TOTALS], ledger(first, second)) == []
    wrong = ledger(first, replace(second, counted=4, late=0))
    assert [one.verdict for one in conservation_differences([ACCOUNT], [TOTALS], wrong)] == ["counted", "late"]


def test_the_stream_time_of_the_last_batch_must_be_the_recomputed_one() -> None:
    found = conservation_differences([ACCOUNT], [TOTALS], ledger(replace(CLAIM, stream_time_ms=6)))
    assert [(one.verdict, one.expected, one.actual) for one in found] == [("stream time", "5 ms", "6 ms")]


@pytest.mark.parametrize(
    ("offsets", "gaps"),
    [([0, 1, 2, 3], []), ([1, 3], [(0, 1), (2, 3)]), ([0], [(1, 4)]), ([3], [(0, 3)])],
)
def test_gaps_are_the_offsets_that_no_record_has(offsets: list[int], gaps: list[tuple[int, int]]) -> None:
    batches = [
        pa.record_batch([pa.array([0], pa.int32()), pa.array([offset], pa.int64())], names=["partition", "offset"])
        for offset in offsets
    ]
    rows = [row for batch in GapPass(ranges={0: (0, 4)})(iter(batches)) for row in batch.to_pylist()]
    assert [(row["start"], row["end"]) for row in rows if row["start"] < row["end"]] == gaps
