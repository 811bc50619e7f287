"""Which records a stream was ordered to set aside, as its audits count the orders.

An order that does not count (``vouched_records``) is forged, and so is one of a record that an earlier audit has
judged, unless that audit lists the order: the stream had read the record before. The recompute counts the record of a
forged order, so that a stream which has set it aside differs from what the log says: nobody without the signing key
can hide a record.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from recount.aside_log import AsideLog
from recount.audit.register import certificates_in_force
from recount.audit.signing import trusted_in
from recount.audit.vouched_records import counted, differences_of
from recount.core.aside_order import AsideOrder
from recount.core.certificate import Certificate
from recount.core.ledger import BatchProof
from recount.core.settings import Settings
from recount.core.verdict import Difference
from recount.declarations import DeclarationLog

_SAYS = {
    "written": "orders that recount set-aside has written and signed",
    "forged": "recount set-aside has not given this order; the audit counts its record",
    "listed": "every order that a certificate lists",
    "gone": "no such order",
}


@dataclass(frozen=True, kw_only=True)
class AsideRecords:
    """The ``orders`` of the present version of ``stream`` that count, oldest first, and the ``offsets`` that they name.

    ``forged`` says by order what is wrong with it, ``missing`` which orders only a certificate has.
    """

    stream: str
    orders: tuple[AsideOrder, ...] = ()
    forged: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    offsets: Mapping[tuple[str, int], frozenset[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings, stream: str) -> Self:
        """As the table and the certificates have them."""
        certificates = certificates_in_force(settings, stream)
        listed = list({AsideOrder(**one) for certificate in certificates for one in certificate.get("set_aside", ())})
        texts = AsideLog(settings.data, stream).texts()
        if not texts and not listed:
            return cls(stream=stream)
        version = DeclarationLog(settings.data, stream).version()
        vouched = {one.sha256 for one in listed}
        found, forged = counted(texts, stream, trusted_in(settings.keys), vouched, AsideOrder.from_json)
        present = [one for one in found if one.version == version]
        too_late = _judged_before(certificates, present, vouched)
        forged += [(one.name, f"an earlier audit has judged {one.name} as a record of the stream") for one in too_late]
        found = [one for one in found if one not in too_late]
        known = {one.sha256 for one in found}
        missing = [one for one in listed if one.sha256 not in known and one.version == version]
        mine = {one.place: one for one in (*found, *missing) if one.version == version}
        offsets: dict[tuple[str, int], frozenset[int]] = {}
        for one in mine.values():
            offsets[one.topic, one.partition] = offsets.get((one.topic, one.partition), frozenset()) | {one.offset}
        return cls(
            stream=stream,
            orders=tuple(sorted(mine.values(), key=lambda one: one.at_ms)),
            forged=tuple(forged),
            missing=tuple(one.name for one in missing),
            offsets=offsets,
        )

    def read_by(self, cut: BatchProof) -> tuple[AsideOrder, ...]:
        """The orders of records that batches up to ``cut`` have read."""
        ends = cut.ends
        return tuple(one for one in self.orders if one.offset < ends.get((one.topic, one.partition), 0))

    def differences(self) -> list[Difference]:
        """What is wrong with the orders."""
        return differences_of(f"set-aside/{self.stream}", forged=self.forged, missing=self.missing, says=_SAYS)


def _judged_before(
    certificates: Iterable[Certificate], orders: Iterable[AsideOrder], listed: Container[str]
) -> list[AsideOrder]:
    """The ``orders`` that no certificate has listed, of records that lie before the end of an audit."""
    ends: dict[tuple[str, int], int] = {}
    for part in (part for certificate in certificates for part in certificate["partitions"]):
        place = part["topic"], part["partition"]
        ends[place] = max(ends.get(place, 0), part["end"])
    return [one for one in orders if one.sha256 not in listed and one.offset < ends.get((one.topic, one.partition), 0)]
