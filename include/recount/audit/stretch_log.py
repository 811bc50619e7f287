"""The log of the stretch that an audit judges: whether it is there still, and where the audit stands where it is not.

An audit judges the batches after its seed again, also where no batch came since the last one. By then Kafka may have
removed what they read, as the topic's retention says: it was judged, so the audit begins and ends behind the last
batch. A log that ends before what batches have read of it was made anew, or cut: what is gone can be judged no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recount.audit.conservation import OFFSETS
from recount.audit.findings import Source
from recount.audit.kept import kept, require_kept
from recount.audit.ledger import Ledger
from recount.audit.store import Seed
from recount.core.errors import Terminal
from recount.core.ledger import BatchProof
from recount.core.tables import Tables
from recount.core.verdict import Difference
from recount.kafka.connection import Connection

CUT_SHORT = "cut short"


@dataclass(frozen=True, kw_only=True)
class Reach:
    """An audit judges the batches after ``seed`` up to ``cut``; none where ``cut`` is that of ``seed``.

    ``short`` are the partitions whose log ends before what the stream has read of them.
    """

    seed: Seed
    cut: BatchProof
    short: tuple[Difference, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StretchLog:
    """The topics that a stream reads, each where ``sources`` says."""

    connection: Connection
    tables: Tables
    sources: Mapping[str, Source]

    def require(self, stretch: Ledger) -> None:
        """Raise as ``require_kept`` does unless all is there that the batches of ``stretch`` have read."""
        for topic, ranges in stretch.ranges.items():
            require_kept(self.connection, self.tables, topic, ranges, self.sources[topic])

    def has(self, stretch: Ledger) -> bool:
        """Whether it is; raises ``Transient`` where an archive is behind."""
        try:
            self.require(stretch)
        except Terminal:
            return False
        return True

    def cut_short(self, stretch: Ledger) -> tuple[Difference, ...]:
        """The partitions whose log on Kafka ends before what the batches of ``stretch`` have read of it."""
        found = []
        for topic, ranges in stretch.ranges.items():
            if self.sources[topic] == "archive":
                continue
            spans = kept(self.connection, topic)
            for partition, (start, end) in ranges.items():
                reached = spans[partition].end if partition in spans else 0
                if start < end and reached < end:
                    found.append(_cut_short(topic, partition, end, reached))
        return tuple(found)

    def reach(self, ledger: Ledger, seed: Seed, cut: BatchProof, judged: Seed) -> Reach:
        """How far an audit gets that is to judge the batches of ``ledger`` after ``seed`` up to ``cut``.

        Where their log is not there, it stands at the audit that has ``judged`` the batch ``cut`` itself, if there is
        one; else, where the log was cut short, at ``seed``. Otherwise nothing can be done: ``require`` says why.
        """
        stretch = ledger.between(seed.order, cut.order)
        short = self.cut_short(stretch)
        if short or not self.has(stretch):
            if judged.run:
                return Reach(seed=judged, cut=cut, short=short)
            last = next((proof for proof in ledger.proofs if proof.order == seed.order), None)
            if short and last:
                return Reach(seed=seed, cut=last, short=short)
        return Reach(seed=seed, cut=cut)


def _cut_short(topic: str, partition: int, end: int, reached: int) -> Difference:
    """The same every night, however far the log has grown: who has accepted it has accepted it the next night too."""
    return Difference(
        kind=OFFSETS,
        place=f"{topic}-{partition}",
        verdict=CUT_SHORT,
        expected=f"a log up to offset {end}, as in the ledger",
        actual="a log that ends before",
        cause=f"the log ended at {reached}: the topic was deleted and made anew, or cut; the batches that read beyond"
        " can be judged no more",
        evidence=(f"{topic}-{partition}@{end}",),
    )
