"""Declaration in force for the audited batches, and the complete audits of a stream as certificates say them.

The declaration also limits a topic to what this version of the stream has written.

What is released is not taken from a row of ``runs``: the stream deletes it, and audits look for it no more. So anybody
who can write to ``runs`` could have rows deleted that nobody has judged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recount.audit.carry.store import Run, complete_runs
from recount.audit.cut.audited_ledger import Ledger, Order
from recount.certificate.document import Certificate
from recount.declare.fingerprint import Declared
from recount.declare.topology import Topology
from recount.kafka.offsets import LogRange
from recount.recompute.raw_log import Ranges
from recount.runtime.settings import Settings
from recount.tables.batch_proofs import held_certificate
from recount.tables.decisions import DeclarationLog, Enacted, OtherDeclaration, other_declaration
from recount.tables.places import Released, Tables, farthest

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class InForce:
    """The deployed declaration beside the one that is in force; ``enacted`` None: a stream of an earlier release.

    ``former`` are the declarations that upgrades of this version of the stream have replaced, oldest first.
    """

    stream: str
    declared: Declared
    enacted: Enacted | None
    former: tuple[Enacted, ...] = ()

    @classmethod
    def of(cls, topology: Topology, root: str) -> InForce:
        """Read it below the data ``root``; raises ``OtherDeclaration`` where the deployed declaration is another."""
        declared, rows = Declared.of(topology), DeclarationLog(root, topology.name).all()
        enacted = rows[-1] if rows else None
        if enacted and enacted.fingerprint != declared.fingerprint:
            raise other_declaration(topology.name, enacted.document, declared)
        former = tuple(row for row in rows[:-1] if row.version == rows[-1].version and row.kind != "reset begun")
        return cls(stream=topology.name, declared=declared, enacted=enacted, former=former)

    @property
    def after(self) -> Order | None:
        """The last batch before the upgrade that brought this declaration: an audit cannot look behind it."""
        return self.enacted.after if self.enacted else None

    @property
    def judged_after(self) -> Order | None:
        """``after``; None where an upgrade has only added something: then all is judged, what was added from there."""
        return None if self.added or self.added_fields else self.after

    def goes_on_from(self, run: Run) -> bool:
        """Whether an audit can go on from what ``run`` handed on.

        It is of this declaration, or the one after which an upgrade brought it.
        """
        return run.fingerprint == self.declared.fingerprint or (
            run.fingerprint is not None and run.order == self.judged_after
        )

    @property
    def closed_ms(self) -> int | None:
        """The frontier that closes those windows that were closed when an upgrade found them; None: none were."""
        return self.enacted.closed_ms if self.enacted else None

    @property
    def added(self) -> Mapping[str, Order]:
        """The topics of the sinks that upgrades have added, each with the last batch before it."""
        return self.enacted.added if self.enacted else {}

    @property
    def added_fields(self) -> Mapping[str, Mapping[str, Order]]:
        """Fields that upgrades have added to what is read, by topic, each with the last batch before it."""
        return self.enacted.added_fields if self.enacted else {}

    def read_since(self, ledger: Ledger) -> dict[str, dict[str, Mapping[int, int]]]:
        """From which offsets on the batches of ``ledger`` have read these fields, by topic, field and partition."""
        return {
            topic: {name: _unread_from(ledger, last).get(topic, {}) for name, last in names.items()}
            for topic, names in self.added_fields.items()
        }

    def done_before(self, ledger: Ledger) -> dict[str, int]:
        """How many batches of ``ledger`` were done when each of these sinks began."""
        return {topic: sum(one.order <= last for one in ledger.proofs) for topic, last in self.added.items()}

    def has_begun(self, topic: str, cut: Order) -> bool:
        """Whether the batches up to ``cut`` wrote to the sink ``topic``."""
        return topic not in self.added or self.added[topic] < cut

    def require_made_by(self, ledger: Ledger) -> None:
        """Raise ``OtherDeclaration`` unless the batches of ``ledger`` were made by this declaration.

        Where upgrades have added something, those before by the declaration that was in force: all else was the same.
        """
        for proof in ledger.proofs:
            if proof.fingerprint not in (None, self._maker_of(proof.order)):
                raise OtherDeclaration(
                    f"batches of stream {self.stream} were made by another declaration than the deployed one",
                    given=f"batch {proof.generation}/{proof.batch}, fingerprint {proof.fingerprint}",
                    expected=f"fingerprint {self.declared.fingerprint}",
                    remedy="audit an interval that ends after the upgrade: certificates of then say what was before. "
                    "Are the audits' tables older than the upgrade? Restore a newer backup of them, or "
                    f"`recount reset {self.stream}`",
                )

    def _maker_of(self, batch: Order) -> str:
        """The fingerprint that ``batch`` must have."""
        rows = [*self.former, *([self.enacted] if self.enacted else [])] if self.added or self.added_fields else []
        made_by = [row.fingerprint for row in rows if row.after is None or row.after < batch]
        return made_by[-1] if made_by else self.declared.fingerprint

    def closing(self, frontier_ms: int | None) -> int | None:
        """The frontier by which windows are closed: never behind where an upgrade found them."""
        return frontier_ms if frontier_ms is None or self.closed_ms is None else max(frontier_ms, self.closed_ms)

    def own(self, topic: str, spans: Mapping[int, LogRange]) -> dict[int, LogRange]:
        """Return the part of ``topic`` in ``spans`` that was written since this version of the stream began."""
        ranges = self.own_ranges(topic, {partition: (span.start, span.end) for partition, span in spans.items()})
        return {partition: LogRange(start=start, end=end) for partition, (start, end) in ranges.items()}

    def own_ranges(self, topic: str, ranges: Ranges) -> dict[int, tuple[int, int]]:
        """The same of offsets; all of a partition that ends before this version began: the topic was recreated."""
        before = self.enacted.published.get(topic, {}) if self.enacted else {}
        begins = {p: before.get(p, start) for p, (start, _) in ranges.items()}
        return {p: (max(start, begins[p]) if begins[p] <= end else start, end) for p, (start, end) in ranges.items()}

    def begins(self, topic: str) -> Mapping[int, int]:
        """The offsets from which this version of the stream reads ``topic``; empty: all of it."""
        begins = self.enacted.begins if self.enacted else None
        return {} if begins is None else begins.get(topic, {})

    def section(self, ledger: Ledger) -> dict[str, Any]:
        """Return the section of a certificate, beside the declaration in words, of an audit of the batches ``ledger``.

        ``added_sinks`` are judged, and ``added_fields`` read, from the offsets on that had not been read by then.
        """
        enacted, after = self.enacted, self.judged_after
        return {
            "fingerprint": self.declared.fingerprint,
            "stream_version": enacted.version if enacted else 1,
            "enacted": enacted.kind if enacted else None,
            "judged_after_batch": list(after) if after else None,
            "begins": enacted.begins if enacted else None,
            "added_sinks": [
                {"sink": topic, "after_batch": list(last), "from_offsets": _unread_from(ledger, last)}
                for topic, last in sorted(self.added.items())
            ],
            "added_fields": [
                {"topic": topic, "field": name, "after_batch": list(last), "from_offsets": offsets[name]}
                for topic, offsets in sorted(self.read_since(ledger).items())
                for name, last in sorted(self.added_fields[topic].items())
            ],
        }


def _unread_from(ledger: Ledger, last: Order) -> dict[str, dict[int, int]]:
    """Return by topic the first offsets that the batches up to ``last`` had not read."""
    ranges = Ledger(tuple(proof for proof in ledger.proofs if proof.order <= last)).ranges
    return {topic: {partition: end for partition, (_, end) in parts.items()} for topic, parts in ranges.items()}


def certified_runs(settings: Settings, stream: str) -> list[Run]:
    """All complete audits of ``stream``, oldest first, each with what its certificate has ``released``.

    One without a certificate that holds has released nothing.
    """
    return [
        replace(run, released=_released(run, held_certificate(settings.reports, stream, run.audit)))
        for run in complete_runs(Tables(settings.data), stream)
    ]


def removed_by_now(runs: Sequence[Run]) -> Released | None:
    """Return what the stream may have removed when ``runs`` were complete: the releases of those before the newest."""
    return farthest(*(run.released for run in runs[:-1]))


def within(found: Released, certificate: Certificate) -> Released | None:
    """``found``, but no more than the audit of ``certificate`` had judged; None: that is nothing."""
    frontier_ms = certificate["cut"]["frontier_ms"]
    if frontier_ms is None:
        return None
    ends = {(part["topic"], part["partition"]): part["end"] for part in certificate["partitions"]}
    offsets = {
        topic: {partition: min(end, ends.get((topic, partition), 0)) for partition, end in parts.items()}
        for topic, parts in found.offsets.items()
    }
    return replace(found, before_ms=min(found.before_ms, frontier_ms), offsets=offsets)


def _released(run: Run, certificate: Certificate | None) -> Released | None:
    told = Released.from_document(certificate.get("released")) if certificate else None
    if told != run.released:
        _LOG.warning("what the row of the audit %s in runs has released counts only as its certificate says", run.audit)
    return told
