"""By which declaration the audited batches were made, and what of the topics this version of the stream has written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recount.audit.ledger import Ledger, Order
from recount.core.fingerprint import Declared
from recount.core.topology import Topology
from recount.declarations import DeclarationLog, Enacted, OtherDeclaration, other_declaration
from recount.kafka.offsets import LogRange
from recount.recompute.log import Ranges


@dataclass(frozen=True, kw_only=True)
class InForce:
    """The deployed declaration beside the one that is in force; ``enacted`` None: a stream of an earlier release."""

    stream: str
    declared: Declared
    enacted: Enacted | None

    @classmethod
    def of(cls, topology: Topology, root: str) -> InForce:
        """As recorded below the data ``root``; raises ``OtherDeclaration`` where the deployed one is another."""
        declared, enacted = Declared.of(topology), DeclarationLog(root, topology.name).last()
        if enacted and enacted.fingerprint != declared.fingerprint:
            raise other_declaration(topology.name, enacted.document, declared)
        return cls(stream=topology.name, declared=declared, enacted=enacted)

    @property
    def after(self) -> Order | None:
        """The last batch before the upgrade that brought this declaration: an audit cannot look behind it."""
        return self.enacted.after if self.enacted else None

    def require_made_by(self, ledger: Ledger) -> None:
        """Raise ``OtherDeclaration`` unless every batch of ``ledger`` was made by this declaration."""
        for proof in ledger.proofs:
            if proof.fingerprint not in (None, self.declared.fingerprint):
                raise OtherDeclaration(
                    f"batches of stream {self.stream} were made by another declaration than the deployed one",
                    given=f"batch {proof.generation}/{proof.batch}, fingerprint {proof.fingerprint}",
                    expected=f"fingerprint {self.declared.fingerprint}",
                    remedy="audit an interval after the upgrade; an earlier one with the code that was deployed then",
                )

    def closing(self, frontier_ms: int | None) -> int | None:
        """The frontier by which windows are closed: never behind where an upgrade found them."""
        closed_ms = self.enacted.closed_ms if self.enacted else None
        return frontier_ms if frontier_ms is None or closed_ms is None else max(frontier_ms, closed_ms)

    def own(self, topic: str, spans: Mapping[int, LogRange]) -> dict[int, LogRange]:
        """Of what ``topic`` holds, what was written since this version of the stream began."""
        ranges = self.own_ranges(topic, {partition: (span.start, span.end) for partition, span in spans.items()})
        return {partition: LogRange(start=start, end=end) for partition, (start, end) in ranges.items()}

    def own_ranges(self, topic: str, ranges: Ranges) -> dict[int, tuple[int, int]]:
        """The same of offsets."""
        before = self.enacted.published.get(topic, {}) if self.enacted else {}
        return {p: (min(end, max(start, before.get(p, start))), end) for p, (start, end) in ranges.items()}

    def begins(self, topic: str) -> Mapping[int, int]:
        """The offsets from which this version of the stream reads ``topic``; empty: all of it."""
        begins = self.enacted.begins if self.enacted else None
        return {} if begins is None else begins.get(topic, {})

    def section(self) -> dict[str, Any]:
        """What a certificate says of it, beside the declaration in words."""
        enacted = self.enacted
        return {
            "fingerprint": self.declared.fingerprint,
            "stream_version": enacted.version if enacted else 1,
            "enacted": enacted.kind if enacted else None,
            "judged_after_batch": list(enacted.after) if enacted and enacted.after else None,
            "begins": enacted.begins if enacted else None,
        }
