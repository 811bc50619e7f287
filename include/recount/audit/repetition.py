"""Scope of an audit that repeats one that has a certificate, and looks at no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from recount.audit.compare.single_judge import Row
from recount.audit.cut.audited_ledger import Ledger, Order
from recount.audit.cut.kept_log import CUT_SHORT
from recount.certificate.document import Certificate
from recount.certificate.finding import ROW_KINDS, UNLISTED, Difference, difference_from
from recount.kafka.offsets import LogRange
from recount.recompute.raw_log import Ranges
from recount.runtime.errors import Terminal
from recount.tables.ledger import TOPIC, BatchProof, TopicIds


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """Scope of ``audit``: the batch ``cut`` up to which it judged, after the audit ``seed`` (None: from the beginning).

    ``published`` are by topic the offsets that were read, ``backfills`` the corrections that there were, ``rows``
    those of findings, which were judged again. ``topic_ids`` had the topics then that had been recreated; ``short``
    were the partitions whose log had been cut short.
    """

    audit: str
    cut: Order
    seed: str | None
    published: Mapping[str, Ranges]
    backfills: tuple[str, ...]
    rows: tuple[Row, ...]
    topic_ids: TopicIds
    short: tuple[Difference, ...] = ()

    @classmethod
    def of(cls, certificate: Certificate) -> Repetition:
        """Return the repetition of the audit of ``certificate``."""
        published: dict[str, dict[int, tuple[int, int]]] = {}
        for one in certificate["digests"]["published"]:
            published.setdefault(one["topic"], {})[one["partition"]] = (one["start"], one["end"])
        backfills = {name for one in certificate["digests"]["tables"] for name in one.get("backfills", ())}
        listed = [one for state in ("open", "accepted", "repaired") for one in certificate["findings"][state]]
        of_rows = [one for one in listed if one["kind"] in ROW_KINDS and one["verdict"] != UNLISTED]
        rows = {(one["key"], one["window_start"], one["window_end"]) for one in of_rows}
        cut = certificate["cut"]
        return cls(
            audit=certificate["audit"],
            cut=(cut["generation"], cut["batch"]),
            seed=certificate["seed"],
            published=published,
            backfills=tuple(sorted(backfills)),
            rows=tuple(sorted(rows, key=str)),
            topic_ids={one["place"]: one["actual"] for one in certificate["differences"] if one["kind"] == TOPIC},
            short=tuple(difference_from(one) for one in certificate["differences"] if one["verdict"] == CUT_SHORT),
        )

    def cut_in(self, ledger: Ledger) -> BatchProof:
        """The batch ``cut``; raises ``Terminal`` when ``ledger`` has lost it."""
        for proof in ledger.proofs:
            if proof.order == self.cut:
                return proof
        raise Terminal(
            "the batch up to which was audited is not in the ledger",
            given=self.cut,
            expected="the ledger of the audited stream",
            remedy="was the stream reset, or its tables restored from an older backup?",
        )

    def within(self, topic: str, spans: Ranges) -> dict[int, tuple[int, int]]:
        """Return what of ``spans``, which are kept now, was read then."""
        read = self.published.get(topic, {})
        return {p: (max(start, read[p][0]), min(end, read[p][1])) for p, (start, end) in spans.items() if p in read}

    def ends(self, topic: str, kept: Mapping[int, LogRange]) -> dict[int, LogRange]:
        """``kept`` up to where was read then; nothing of a partition of which nothing was."""
        read = self.published.get(topic, {})
        ends = {p: read[p][1] if p in read else span.start for p, span in kept.items()}
        return {p: replace(span, end=min(span.end, ends[p])) for p, span in kept.items()}
