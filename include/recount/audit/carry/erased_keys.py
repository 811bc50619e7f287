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
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from recount.audit.carry.store import AuditStore, Run
from recount.audit.certificate.signing import PublicKeys, trusted_in
from recount.audit.cut.audited_ledger import LEDGER, Order
from recount.audit.findings.finding_register import certificates_in_force
from recount.certificate.document import Certificate
from recount.certificate.finding import Difference
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.decisions import (
    AsideLog,
    DeclarationLog,
    ErasureLog,
    OrderLog,
    not_finished,
    offsets_of,
    unfinished,
)
from recount.tables.ledger import BatchProof
from recount.tables.signed_orders import AsideOrder, Erasure, SignedRecord

R = TypeVar("R", bound=SignedRecord)


@dataclass(frozen=True, kw_only=True)
class _Records:
    """The records of one table of ``stream``.

    ``forged`` says by record what is wrong with it, ``missing`` which records only a certificate has.
    """

    stream: str
    forged: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    table: ClassVar[str]
    named: ClassVar[str]
    """What the evidence calls a record: the text before its name."""
    says: ClassVar[Mapping[str, str]]
    """The records that are ``written``, what makes a ``forged`` one a violation, all that are ``listed`` and what is
    there if one is ``gone``."""

    def differences(self) -> list[Difference]:
        """Return what is wrong with the records: forged ones, and those that only a certificate has."""
        says = self.says
        removed = "somebody removed it from the table; it counts as the certificate has it"
        extra = [("extra", name, says["written"], fault, says["forged"]) for name, fault in self.forged]
        lost = [("lost", name, says["listed"], says["gone"], removed) for name in self.missing]
        return [
            Difference(
                kind=LEDGER,
                place=f"table {self.table}/{self.stream}",
                verdict=verdict,
                expected=expected,
                actual=actual,
                cause=cause,
                evidence=(self.named + name,),
            )
            for verdict, name, expected, actual, cause in (*extra, *lost)
        ]


def _counted(
    settings: Settings, log: OrderLog, listed: Iterable[R], kind: type[R]
) -> tuple[list[R], list[tuple[str, str]], list[R]]:
    """The records of ``log`` and of certificates (``listed``) that count in the stream's present version, forged ones
    by name with what is wrong with them, and those of the former that the log lacks.
    """
    version, trusted = DeclarationLog(settings.data, log.stream).version(), trusted_in(settings.keys)
    vouched = {one.sha256: one for one in listed if one.version == version}
    found, forged = [], []
    for text in log.texts():
        try:
            one = kind.from_json(text)
        except Terminal as fault:
            forged.append((hashlib.sha256(text.encode()).hexdigest()[:16], str(fault)))
            continue
        fault_found = _fault(one, log.stream, trusted, vouched)
        if fault_found is None:
            found.append(one)
        else:
            forged.append((one.name, fault_found))
    known = {one.sha256 for one in found}
    missing = [one for one in vouched.values() if one.sha256 not in known]
    return [one for one in (*missing, *found) if one.version == version], forged, missing


def _fault(one: SignedRecord, stream: str, trusted: PublicKeys, vouched: Container[str]) -> str | None:
    if not one.holds:
        return f"the SHA-256 of {one.name} is not that of the record"
    if one.stream != stream:
        return f"{one.name} is of the stream {one.stream}"
    if not trusted.keys or one.sha256 in vouched:
        return None
    return trusted.fault_of(one.key_id, one.signature, one.signed)


@dataclass(frozen=True, kw_only=True)
class ErasedKeys(_Records):
    """The erasures of the present version of ``stream`` that are ``done``, oldest first, and the one that is not."""

    done: tuple[Erasure, ...] = ()
    unfinished: Erasure | None = None
    table = "erasures"
    named = "erasure "
    says = {
        "written": "records that recount erase has written and signed",
        "forged": "nobody who may sign has erased this: what is missing was not erased but lost",
        "listed": "every erasure that a certificate lists",
        "gone": "no such record",
    }

    @classmethod
    def of(cls, settings: Settings, stream: str) -> Self:
        """Read the erasures from the table and the certificates."""
        certificates = certificates_in_force(settings, stream)
        listed = (Erasure(**one) for certificate in certificates for one in certificate.get("erasures", ()))
        mine, forged, missing = _counted(settings, ErasureLog(settings.data, stream), listed, Erasure)
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

    def differences_behind(self, seed: Run | None, store: AuditStore) -> list[Difference]:
        """Return what is wrong with the records, and with the row of ``seed``, at which an audit begins, in ``runs``.

        That row is not judged where the newest erasure has not left it. It has the checksums of all that is left.
        """
        found, newest = self.differences(), self.newest
        if newest is None or seed is None or seed.audit != newest.audit:
            return found
        told = run_sha256(store.document_of(seed.audit))
        if told != newest.run_sha256:
            found.append(
                Difference(
                    kind=LEDGER,
                    place=f"audits/{self.stream}",
                    verdict="altered",
                    expected=f"run {newest.run_sha256} as erasure {newest.erasure} left it",
                    actual=f"run {told}",
                    cause="somebody wrote to the audit's tables after the erasure",
                    evidence=(f"erasure {newest.erasure}",),
                )
            )
        return found


def run_sha256(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a row of ``runs``: its cut, its offsets and its checksums among it."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class AsideRecords(_Records):
    """The ``orders`` of the present version of ``stream`` that count, oldest first, and the ``offsets`` they name."""

    orders: tuple[AsideOrder, ...] = ()
    table = "set-aside"
    named = ""
    says = {
        "written": "orders that recount set-aside has written and signed",
        "forged": "recount set-aside has not given this order; the audit counts its record",
        "listed": "every order that a certificate lists",
        "gone": "no such order",
    }

    @classmethod
    def of(cls, settings: Settings, stream: str) -> Self:
        """Read the orders from the table and the certificates."""
        certificates = certificates_in_force(settings, stream)
        listed = [AsideOrder(**one) for certificate in certificates for one in certificate.get("set_aside", ())]
        mine, forged, missing = _counted(settings, AsideLog(settings.data, stream), listed, AsideOrder)
        too_late = _judged_before(certificates, mine, {one.sha256 for one in listed})
        forged += [(one.name, f"an earlier audit has judged {one.name} as a record of the stream") for one in too_late]
        orders = {one.place: one for one in mine if one not in too_late}
        return cls(
            stream=stream,
            orders=tuple(sorted(orders.values(), key=lambda one: one.at_ms)),
            forged=tuple(forged),
            missing=tuple(one.name for one in missing),
        )

    @property
    def offsets(self) -> Mapping[tuple[str, int], frozenset[int]]:
        """The offsets that the orders name, by topic and partition."""
        return offsets_of(self.orders)

    def read_by(self, cut: BatchProof) -> tuple[AsideOrder, ...]:
        """The orders of records that batches up to ``cut`` have read."""
        ends = cut.ends
        return tuple(one for one in self.orders if one.offset < ends.get((one.topic, one.partition), 0))


def _judged_before(
    certificates: Iterable[Certificate], orders: Iterable[AsideOrder], listed: Container[str]
) -> list[AsideOrder]:
    """The ``orders`` that no certificate has listed, of records that lie before the end of an audit."""
    ends: dict[tuple[str, int], int] = {}
    for part in (part for certificate in certificates for part in certificate["partitions"]):
        place = part["topic"], part["partition"]
        ends[place] = max(ends.get(place, 0), part["end"])
    return [one for one in orders if one.sha256 not in listed and one.offset < ends.get((one.topic, one.partition), 0)]
