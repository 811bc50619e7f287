"""Erasures of keys and orders to set records aside: which of them count, and which are forged.

A record of either counts where its SHA-256 holds, it is of this stream and, where there are keys, one of them has
signed it. What a certificate that counts has listed needs no signature: it is the certificate's.

Every audit calls a forged one a difference: so nobody without the signing key can pass a loss off as an erasure, or
hide a record. An order for a record that an earlier audit has judged is forged too, unless that audit lists the order:
the stream had read the record before. The recompute counts the record of a forged order, so that a stream which has
set it aside differs from what the log says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from recount.audit.carry.store import Run
from recount.audit.certificate.signing import PublicKeys, trusted_in
from recount.audit.cut.audited_ledger import LEDGER, Order
from recount.audit.findings.finding_register import certificates_in_force
from recount.certificate.document import Certificate
from recount.certificate.finding import Difference
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.decisions import AsideLog, DeclarationLog, ErasureLog, not_finished, unfinished
from recount.tables.ledger import BatchProof
from recount.tables.signed_orders import AsideOrder, Erasure, SignedRecord

R = TypeVar("R", bound=SignedRecord)
_ERASURES_SAY = {
    "written": "records that recount erase has written and signed",
    "forged": "nobody who may sign has erased this: what is missing was not erased but lost",
    "listed": "every erasure that a certificate lists",
    "gone": "no such record",
}
_ORDERS_SAY = {
    "written": "orders that recount set-aside has written and signed",
    "forged": "recount set-aside has not given this order; the audit counts its record",
    "listed": "every order that a certificate lists",
    "gone": "no such order",
}


def counted(
    texts: Sequence[str], stream: str, trusted: PublicKeys, listed: Iterable[str], read: Callable[[str], R]
) -> tuple[list[R], list[tuple[str, str]]]:
    """The records among ``texts`` that count, and by the name of the others what is wrong with them.

    ``listed`` are the SHA-256 of those that a certificate vouches for.
    """
    vouched, found, forged = set(listed), [], []
    for text in texts:
        try:
            one = read(text)
        except Terminal as fault:
            forged.append((hashlib.sha256(text.encode()).hexdigest()[:16], str(fault)))
            continue
        fault_found = _fault(one, stream, trusted, vouched)
        if fault_found is None:
            found.append(one)
        else:
            forged.append((one.name, fault_found))
    return found, forged


def differences_of(
    table: str, *, forged: Sequence[tuple[str, str]], missing: Sequence[str], says: Mapping[str, str]
) -> list[Difference]:
    """Return what is wrong with the records of ``table``: ``forged`` ones, and those that only a certificate has.

    Names are the evidence. ``says`` has what one reads of them: the records that are ``written``, what makes a
    ``forged`` one a violation, all that are ``listed`` and what is there if one is ``gone``.
    """
    extra = [(says["written"], fault, says["forged"], name) for name, fault in forged]
    removed = "somebody removed it from the table; it counts as the certificate has it"
    lost = [(says["listed"], says["gone"], removed, name) for name in missing]
    return [
        Difference(
            kind=LEDGER,
            place=f"table {table}",
            verdict=verdict,
            expected=expected,
            actual=actual,
            cause=cause,
            evidence=(name,),
        )
        for verdict, wrong in (("extra", extra), ("lost", lost))
        for expected, actual, cause, name in wrong
    ]


def _fault(one: SignedRecord, stream: str, trusted: PublicKeys, vouched: set[str]) -> str | None:
    if not one.holds:
        return f"the SHA-256 of {one.name} is not that of the record"
    if one.stream != stream:
        return f"{one.name} is of the stream {one.stream}"
    if not trusted.keys or one.sha256 in vouched:
        return None
    return trusted.fault_of(one.key_id, one.signature, one.signed)


@dataclass(frozen=True, kw_only=True)
class ErasedKeys:
    """The erasures of the present version of ``stream`` that are ``done``, oldest first, and the one that is not.

    ``forged`` says by record what is wrong with it, ``missing`` which records only a certificate has.
    """

    stream: str
    done: tuple[Erasure, ...] = ()
    unfinished: Erasure | None = None
    forged: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings, stream: str) -> Self:
        """Read the erasures from the table and the newest certificate."""
        log = ErasureLog(settings.data, stream)
        certificates = certificates_in_force(settings, stream)
        newest = max(certificates, key=lambda one: int(one["sequence"]), default={})
        listed = [Erasure(**one) for one in newest.get("erasures", ())]
        texts = log.texts()
        if not texts and not listed:
            return cls(stream=stream)
        version = DeclarationLog(settings.data, stream).version()
        vouched = {one.sha256 for one in listed}
        found, forged = counted(texts, stream, trusted_in(settings.keys), vouched, Erasure.from_json)
        known = {one.sha256 for one in found}
        missing = [one for one in listed if one.sha256 not in known]
        mine = [one for one in (*missing, *found) if one.version == version]
        done = {one.erasure: one for one in mine if one.state == "done"}
        return cls(
            stream=stream,
            done=tuple(sorted(done.values(), key=lambda one: one.at_ms)),
            unfinished=unfinished(mine),
            forged=tuple(forged),
            missing=tuple(one.erasure for one in missing),
        )

    @property
    def newest(self) -> Erasure | None:
        """The last one: no audit can look behind it."""
        return self.done[-1] if self.done else None

    @property
    def backfills(self) -> int:
        """So many backfills the stream has had, though there may be no rows of them any more."""
        return max((one.backfills for one in self.done), default=0)

    def require_finished(self) -> None:
        """Raise ``Terminal`` while one of them has begun and is not done."""
        if self.unfinished is not None:
            raise not_finished(self.unfinished)

    def admits(self, run: Run) -> bool:
        """Whether an audit can go on from ``run``: it builds on what the newest erasure left."""
        return self.newest is None or self.newest.audit in (run.audit, *run.lineage)

    def require_judgeable(self, cut: Order) -> None:
        """Raise ``Terminal`` where the batch ``cut`` is before the newest erasure."""
        newest = self.newest
        if newest is not None and cut < newest.order:
            raise Terminal(
                f"what {self.stream} had done by then cannot be judged any more",
                given=f"batch {cut[0]}/{cut[1]}; a key was erased after batch {newest.generation}/{newest.batch}",
                expected="a batch after the erasure",
                remedy=f"the certificates until {newest.audit} say what was found before",
            )

    def require_repeatable(self, audit: str, seed: Run | None) -> None:
        """Raise ``Terminal`` where ``audit``, which began at ``seed``, saw what was erased since."""
        if self.newest is not None and (seed is None or not self.admits(seed)):
            raise Terminal(
                "this audit cannot be repeated",
                given=f"{audit}; a key was erased after audit {self.newest.audit}",
                expected="an audit that began at the erasure or later",
                remedy="trust its signature: what it judged is not there any more",
            )

    def snapshot_of(self, audit: str, certified: object) -> object:
        """The SHA-256 that the snapshot of ``audit`` must have, whose certificate says ``certified``."""
        for one in self.done:
            if one.audit == audit and one.snapshot_before == certified:
                certified = one.snapshot_after
        return certified

    def differences(self) -> list[Difference]:
        """Return what is wrong with the records."""
        return differences_of(
            f"erasures/{self.stream}",
            forged=[(f"erasure {name}", fault) for name, fault in self.forged],
            missing=[f"erasure {name}" for name in self.missing],
            says=_ERASURES_SAY,
        )

    def seed_differences(self, run: Mapping[str, Any] | None, snapshot: str | None) -> list[Difference]:
        """Return what is wrong with the row ``run`` of the audit that an audit begins at, and with its ``snapshot``.

        Nothing where the newest erasure has not left them. A ``snapshot`` that is not known (None) is not judged.
        """
        newest = self.newest
        if newest is None or run is None or run["audit"] != newest.audit:
            return []
        told = {"run": (newest.run_sha256, run_sha256(run)), "snapshot": (newest.snapshot_after, snapshot)}
        return [
            Difference(
                kind=LEDGER,
                place=f"audits/{self.stream}",
                verdict="altered",
                expected=f"{name} {signed_for} as erasure {newest.erasure} left it",
                actual=f"{name} {found}",
                cause="somebody wrote to the audit's tables after the erasure",
                evidence=(f"erasure {newest.erasure}",),
            )
            for name, (signed_for, found) in told.items()
            if found is not None and found != signed_for
        ]


def run_sha256(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a row of ``runs``: its cut, its offsets and its checksums among it."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


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
        """Read the orders from the table and the certificates."""
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
        """Return what is wrong with the orders."""
        return differences_of(f"set-aside/{self.stream}", forged=self.forged, missing=self.missing, says=_ORDERS_SAY)


def _judged_before(
    certificates: Iterable[Certificate], orders: Iterable[AsideOrder], listed: Container[str]
) -> list[AsideOrder]:
    """The ``orders`` that no certificate has listed, of records that lie before the end of an audit."""
    ends: dict[tuple[str, int], int] = {}
    for part in (part for certificate in certificates for part in certificate["partitions"]):
        place = part["topic"], part["partition"]
        ends[place] = max(ends.get(place, 0), part["end"])
    return [one for one in orders if one.sha256 not in listed and one.offset < ends.get((one.topic, one.partition), 0)]
