"""A stream's whole chain of certificates: every fault in it is named, not only the first.

A chain without faults has the numbers 1, 2, 3, … once each, every certificate names the hash of the one before it, the
newest is the published head, and from the first signed one on all are signed. Unsigned certificates before that are
vouched for by the hash in the first signed one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from recount.certificate.document import (
    Certificate,
    SignatureFault,
    Unverified,
    forgotten,
    forgotten_erasures,
    forgotten_orders,
    standing,
    verify_alone,
)

FaultKind = Literal[
    "altered", "foreign", "fork", "missing", "rewritten", "unsigned", "wrongly signed", "newest deleted", "unpublished"
]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Fault of a chain, at which ``number``; None where it has none that can be trusted."""

    kind: FaultKind
    number: int | None
    what: str

    def __str__(self) -> str:
        return f"{self.kind}{'' if self.number is None else f', number {self.number}'}: {self.what}"


@dataclass(eq=False)
class Chain:
    """The certificates of ``stream`` by the name of their file; ``head`` is what was published, if that was asked.

    ``signature_fault`` checks a signature; without it only the absence of one is noticed.
    """

    stream: str
    files: Mapping[str, Certificate]
    signature_fault: SignatureFault | None = field(default=None, kw_only=True)
    head: Certificate | None = field(default=None, kw_only=True)
    head_is_asked: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self._altered: set[int] = set()
        self._numbered: dict[int, dict[str, Certificate]] = {}
        self._unsound = list(self._sorted())
        self.newest = max((*self._numbered, *self._altered), default=0)

    def faults(self) -> list[Fault]:
        of_the_head = self._head_faults() if self.head_is_asked else ()
        links = (*self._forks(), *self._gaps(), *self._broken_links())
        return [*self._unsound, *links, *self._signatures(), *self._missing_heads(), *of_the_head]

    def _sorted(self) -> Iterator[Fault]:
        """Sort the sound ones by number and hash, so that copies of one certificate are one; yields the others."""
        for name, certificate in sorted(self.files.items()):
            number = certificate.get("sequence")
            told = number if type(number) is int else None
            try:
                verify_alone(certificate)
            except Unverified as error:
                if told is not None:
                    self._altered.add(told)
                yield Fault(kind="altered", number=told, what=f"{name}: {error}")
                continue
            if certificate["stream"] != self.stream:
                what = f"{name} is of the stream {certificate['stream']}, not of {self.stream}"
                yield Fault(kind="foreign", number=told, what=what)
                continue
            self._numbered.setdefault(certificate["sequence"], {}).setdefault(certificate["sha256"], certificate)

    def _forks(self) -> Iterator[Fault]:
        for number, found in sorted(self._numbered.items()):
            if len(found) > 1:
                audits = " and ".join(sorted(str(one["audit"]) for one in found.values()))
                yield Fault(kind="fork", number=number, what=f"the audits {audits} have this number")

    def _gaps(self) -> Iterator[Fault]:
        present = self._numbered.keys() | self._altered
        for number in range(1, self.newest):
            if number not in present:
                yield Fault(kind="missing", number=number, what="no certificate with this number is at hand")

    def _broken_links(self) -> Iterator[Fault]:
        for number, found in sorted(self._numbered.items()):
            before = self._numbered.get(number - 1, {})
            if number == 1 or not before or number - 1 in self._altered:
                continue
            for certificate in found.values():
                if certificate["previous_sha256"] not in before:
                    audits = ", ".join(str(one["audit"]) for one in before.values())
                    what = f"{audits} is not the certificate that number {number}, {certificate['audit']}, follows"
                    yield Fault(kind="rewritten", number=number - 1, what=what)
                    continue
                former = before[certificate["previous_sha256"]]
                for forgets in (
                    *forgotten(former, certificate),
                    *forgotten_erasures(former, certificate),
                    *forgotten_orders(former, certificate),
                ):
                    yield Fault(kind="altered", number=number, what=f"{certificate['audit']}: {forgets}")

    def _signatures(self) -> Iterator[Fault]:
        signed = [number for number, found in self._numbered.items() if any(_is_signed(one) for one in found.values())]
        first, last = min(signed, default=None), max(signed, default=0)
        for number, certificate in self._in_order():
            if certificate.get("signature"):
                fault = self.signature_fault(certificate) if self.signature_fault else None
                if fault:
                    yield Fault(kind="wrongly signed", number=number, what=f"{certificate['audit']}: {fault}")
                continue
            after_a_signed_one = first is not None and number > first
            vouched_for = self.signature_fault is None or number < last
            if _is_signed(certificate) or after_a_signed_one or not vouched_for:
                what = f"{certificate['audit']}: {standing(certificate)}"
                yield Fault(kind="unsigned", number=number, what=what)

    def _missing_heads(self) -> Iterator[Fault]:
        """Certificates that found no head though one had been published: newer ones may have been deleted with it."""
        for number, certificate in self._in_order():
            found_none = "published_head" in certificate and certificate["published_head"] is None
            before = self._numbered.get(number - 1, {}).values()
            if found_none and any("published_head" in one for one in before):
                what = f"{certificate['audit']} was issued when the head was missing: others may have had its number"
                yield Fault(kind="unpublished", number=number, what=what)

    def _in_order(self) -> Iterator[tuple[int, Certificate]]:
        for number, found in sorted(self._numbered.items()):
            yield from ((number, one) for one in found.values())

    def _head_faults(self) -> Iterator[Fault]:
        head = self.head
        if head is None:
            if self.newest:
                yield Fault(kind="unpublished", number=self.newest, what="no head of this stream is published")
            return
        number = head["sequence"]
        if head.get("signature") and self.signature_fault and (fault := self.signature_fault(head)):
            yield Fault(kind="wrongly signed", number=number, what=f"the published head: {fault}")
        elif (
            self.signature_fault and not head.get("signature") and head["sha256"] not in self._numbered.get(number, {})
        ):
            yield Fault(kind="unsigned", number=number, what="the published head")
        if number > self.newest:
            numbers = f"numbers {self.newest + 1} to {number}" if number > self.newest + 1 else f"number {number}"
            what = f"{numbers} was published, last {head['audit']}, and is not at hand"
            yield Fault(kind="newest deleted", number=number, what=what)
        elif number in self._numbered and head["sha256"] not in self._numbered[number]:
            audits = ", ".join(str(one["audit"]) for one in self._numbered[number].values())
            yield Fault(kind="rewritten", number=number, what=f"{audits} is not {head['audit']}, which was published")
        if number < self.newest:
            what = f"the published head is number {number}: it was put back, or newer certificates were added"
            yield Fault(kind="unpublished", number=self.newest, what=what)


def told_of(chain: Chain) -> Iterator[str]:
    """Yield what was looked at, as sentences, and what was not."""
    yield f"stream {chain.stream}: {len(chain.files)} certificates, the newest is number {chain.newest}"
    yield from (f"{n} {how}" for how, n in sorted(Counter(map(standing, chain.files.values())).items()))
    if chain.signature_fault is None:
        yield "signatures were not checked: give the public key, --public-key FILE"
    if not chain.head_is_asked:
        yield "the published head was not asked for, --head TOPIC: newest certificates may be missing"


def _is_signed(certificate: Certificate) -> bool:
    """Whether it is signed, or was."""
    return bool(certificate.get("key_id") or certificate.get("signature"))


def successor_of(certificates: Iterable[Certificate], head: Certificate | None) -> Certificate | None:
    """The certificate or head that the next one is to follow; None: the next one is the first.

    That is the newest at hand that descends from ``head``. Where none does, it is the head: the chain that was
    published goes on, and what was deleted or rewritten stays visible as a hole or a fork.
    """
    at_hand = {one["sha256"]: one for one in certificates}
    newest = max(at_hand.values(), key=lambda one: int(one["sequence"]), default=None)
    if head is None or newest is None:
        return head or newest
    ancestor: Certificate | None = newest
    while ancestor is not None and ancestor["sequence"] > head["sequence"]:
        ancestor = at_hand.get(ancestor.get("previous_sha256"))
    return newest if ancestor is not None and ancestor["sha256"] == head["sha256"] else head
