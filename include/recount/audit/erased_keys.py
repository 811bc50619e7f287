"""Which keys a stream's audits have forgotten, and from where on they can judge since.

A record that does not count (``vouched_records``) is forged, which every audit calls a difference: so nobody without
the signing key can pass a loss off as an erasure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from recount.audit.ledger import Order
from recount.audit.ledger_rules import LEDGER
from recount.audit.register import certificates_in_force
from recount.audit.signing import trusted_in
from recount.audit.store import Run
from recount.audit.vouched_records import counted, differences_of
from recount.core.erasure import Erasure
from recount.core.errors import Terminal
from recount.core.settings import Settings
from recount.core.verdict import Difference
from recount.declarations import DeclarationLog
from recount.erasures import ErasureLog, not_finished, unfinished

_SAYS = {
    "written": "records that recount erase has written and signed",
    "forged": "nobody who may sign has erased this: what is missing was not erased but lost",
    "listed": "every erasure that a certificate lists",
    "gone": "no such record",
}


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
        """As the table and the newest certificate have them."""
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
        """Raise ``Terminal`` where the batch ``cut`` lies before the newest erasure."""
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
        """What is wrong with the records."""
        return differences_of(
            f"erasures/{self.stream}",
            forged=[(f"erasure {name}", fault) for name, fault in self.forged],
            missing=[f"erasure {name}" for name in self.missing],
            says=_SAYS,
        )

    def seed_differences(self, run: Mapping[str, Any] | None, snapshot: str | None) -> list[Difference]:
        """What is wrong with the row ``run`` of the audit that an audit begins at, and its ``snapshot``.

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
    """What tells a row of ``runs`` from any other: its cut, its offsets and its checksums among it."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
