"""A certificate: what an audit proved, as canonical JSON that carries its own hash and that of its predecessor.

The hash is SHA-256 over the canonical form without the fields ``sha256`` and ``signature``: UTF-8, keys sorted, no
spaces, no floats. Each certificate names the hash of the stream's certificate before it. What is signed is ``signed``,
which names the hash; ``recount.audit.certificate.signing`` checks signatures.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from recount.certificate.finding import difference_from, finding_id
from recount.runtime.errors import Terminal

_PLACES = ("kafka", "delta")
_IN_ORDER = ("match", "expired")
FORMAT = "recount certificate 2"
_COUNTED = ("topic", "partition", "start", "end", "records")
_HEX_DIGITS = 64
Certificate = Mapping[str, Any]
SignatureFault = Callable[[Certificate], str | None]
"""Says what is wrong with the signature of a certificate or head; None when it holds."""
_UNHASHED = ("sha256", "signature")
_SIGNED = ("stream", "sequence", "audit", "sha256")
_FATES = ("counted", "late", "filtered", "null_key", "dead_lettered")
_RARE_FATES = ("null_value", "deduplicated", "waiting")
"""Fates that certificates of earlier releases need not have."""
FATES = (*_FATES, *_RARE_FATES)
"""What becomes of a record, as the account of a partition calls it."""
_NO_RECORDS = ("control", "aborted", "compacted", "expired", "unaccounted")


def finding_faults(certificate: Mapping[str, Any]) -> Iterator[str]:
    """Where the section ``findings`` contradicts itself, the outcome, or what the audit saw."""
    section = certificate["findings"]
    outcome = "violation" if section["open_found"] else "match"
    if certificate["outcome"] != outcome:
        yield f"outcome {certificate['outcome']}, but {section['open_found']} findings are open"
    for state in ("open", "accepted", "repaired"):
        yield from _state_faults(certificate, state)
    yield from _unfollowed(certificate)
    if outcome == "match":
        yield from _not_accepted(certificate)


def forgotten(former: Mapping[str, Any], certificate: Mapping[str, Any]) -> Iterator[str]:
    """The findings that were open in the certificate before and are neither open, accepted nor repaired in this one.

    A reset begins a new version of the stream: findings of the former version belong to that.
    """
    if version_of(former) != version_of(certificate):
        return
    section = certificate["findings"]
    states = ("open", "accepted", "repaired")
    if any(len(section[state]) < section[f"{state}_found"] for state in states):
        return
    told = {one["finding"] for state in states for one in section[state]}
    for one in former["findings"]["open"]:
        if one["finding"] not in told:
            yield f"the finding {one['finding']}, open in {former['audit']}, is not mentioned"


def forgotten_erasures(former: Mapping[str, Any], certificate: Mapping[str, Any]) -> Iterator[str]:
    """The erasures that the certificate before lists, of the same version of the stream, and this one does not."""
    if version_of(former) != version_of(certificate):
        return
    told = {one["sha256"] for one in certificate.get("erasures", ())}
    for one in former.get("erasures", ()):
        if one["sha256"] not in told:
            yield f"the erasure {one['erasure']}, listed in {former['audit']}, is not mentioned"


def forgotten_orders(former: Mapping[str, Any], certificate: Mapping[str, Any]) -> Iterator[str]:
    """The records set aside that the certificate before lists, of the same version of the stream, and this one not.

    An audit of an earlier batch lists those that were read until then.
    """
    if version_of(former) != version_of(certificate) or _cut(certificate) < _cut(former):
        return
    told = {one["sha256"] for one in certificate.get("set_aside", ())}
    for one in former.get("set_aside", ()):
        if one["sha256"] not in told:
            place = f"{one['topic']}-{one['partition']}@{one['offset']}"
            yield f"the record {place}, set aside in {former['audit']}, is not mentioned"


def _cut(certificate: Mapping[str, Any]) -> tuple[int, int]:
    return certificate["cut"]["generation"], certificate["cut"]["batch"]


def version_of(certificate: Mapping[str, Any]) -> int:
    return int(certificate.get("declaration", {}).get("stream_version", 1))


def _state_faults(certificate: Mapping[str, Any], state: str) -> Iterator[str]:
    section = certificate["findings"]
    if len(section[state]) > section[f"{state}_found"]:
        yield f"{section[f'{state}_found']} {state} findings, but {len(section[state])} are listed"
    for one in section[state]:
        if one["state"] != state or finding_id(certificate["stream"], difference_from(one)) != one["finding"]:
            yield f"{one['finding']} is not what is listed as {state}"
        told = [(one[name] or "").strip() for name in ("accepted_by", "reason")]
        if state == "accepted" and not all(told):
            yield f"{one['finding']} is accepted, but nobody says by whom and why"
        if state != "accepted" and any(told):
            yield f"{one['finding']} is {state}, but was accepted"


def _unfollowed(certificate: Mapping[str, Any]) -> Iterator[str]:
    """Differences that are neither open nor accepted; what is beyond the length of the lists is not known."""
    section = certificate["findings"]
    listed = [one for state in ("open", "accepted") for one in section[state]]
    if certificate["differences_found"] and not listed:
        yield f"{certificate['differences_found']} differences, but no finding is open or accepted"
    if len(listed) == section["open_found"] + section["accepted_found"]:
        followed = {one["finding"] for one in listed}
        for one in certificate["differences"]:
            if finding_id(certificate["stream"], difference_from(one)) not in followed:
                yield f"the difference {one.get('finding')} is neither open nor accepted"


def _not_accepted(certificate: Mapping[str, Any]) -> Iterator[str]:
    """Under a match, only what was accepted may differ."""
    accepted = {one["kind"] for one in certificate["findings"]["accepted"]}
    for place in _PLACES:
        wrong = {v: n for v, n in certificate["verdicts"][place].items() if v not in _IN_ORDER and n}
        if wrong and "output" not in accepted:
            yield f"outcome match, but {place} has {wrong}"
    if any(part["unaccounted"] for part in certificate["partitions"]) and "offsets" not in accepted:
        yield "outcome match, but offsets are unaccounted for"
    if not all(miss["explained"] for miss in certificate["grace_misses"]) and "completeness" not in accepted:
        yield "outcome match, but a grace miss is unexplained"


class Unverified(Terminal):
    """A certificate that does not hold: changed, broken off from its predecessor, or contradicting itself."""


def canonical(document: Mapping[str, Any]) -> bytes:
    """The one text of ``document`` that is hashed."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def content_hash(document: Mapping[str, Any]) -> str:
    """The SHA-256 of ``document`` without its ``sha256`` and ``signature``, in hexadecimal."""
    return hashlib.sha256(
        canonical({name: part for name, part in document.items() if name not in _UNHASHED})
    ).hexdigest()


def certified(
    document: Mapping[str, Any], previous: Certificate | None, *, key_id: str | None = None
) -> dict[str, Any]:
    """``document`` as the successor of ``previous`` (None: the first of its stream), with its hash, unsigned.

    ``key_id`` names the key that is going to sign it: a signature that was taken away is missed.
    """
    chained = {
        **json.loads(canonical(document)),  # as a reader of the file finds it: keys of objects are text
        "format": FORMAT,
        "sequence": previous["sequence"] + 1 if previous else 1,
        "previous_sha256": previous["sha256"] if previous else None,
        "key_id": key_id,
    }
    return {**chained, "sha256": content_hash(chained), "signature": None}


def signed(certificate: Certificate) -> bytes:
    """Return the bytes over which a signature of ``certificate``, or of the head that names it, is made."""
    return canonical({name: certificate[name] for name in _SIGNED} | {"is": FORMAT})


def head_of(certificate: Certificate) -> dict[str, Any]:
    """The head of the chain that ends with ``certificate``: what is published beside it."""
    return {name: certificate[name] for name in (*_SIGNED, "key_id", "signature")}


def verify(
    certificate: Certificate, others: Iterable[Certificate], signature_fault: SignatureFault | None = None
) -> list[str]:
    """Check ``certificate`` and the predecessors of it among ``others``; returns what was checked, as sentences.

    Raises ``Unverified`` at the first thing that does not hold. A chain that ends because no predecessor is at hand is
    not a fault: the last sentence says where it ends. Signatures are checked where ``signature_fault`` is given;
    ``certificate`` must be signed then, and vouches by its hash for unsigned ones before it.
    """
    if signature_fault:
        _require(bool(certificate.get("signature")), "signature", standing(certificate), "a signature")
    by_hash = {other.get("sha256"): other for other in others}
    checked = []
    while True:
        verify_alone(certificate)
        _verify_signature(certificate, signature_fault)
        checked.append(
            f"{certificate['audit']}: hash, counts and verdict hold (number {certificate['sequence']}, "
            f"{certificate['outcome']}; {standing(certificate)})"
        )
        previous = certificate["previous_sha256"]
        if previous is None:
            return [*checked, "the chain is complete: it begins with the stream's first certificate"]
        if previous not in by_hash:
            return [*checked, f"the chain ends here: no certificate with the hash {previous} is at hand"]
        former = by_hash[previous]
        stream, number = former.get("stream"), former.get("sequence")
        _require(stream == certificate["stream"], "stream", stream, certificate["stream"])
        _require(number == certificate["sequence"] - 1, "sequence", number, "one less")
        for fault in forgotten(former, certificate):
            raise Unverified.of("certificate-forgets-a-finding", given=fault)
        for fault in forgotten_erasures(former, certificate):
            raise Unverified.of("certificate-forgets-an-erasure", given=fault)
        for fault in forgotten_orders(former, certificate):
            raise Unverified.of("certificate-forgets-a-set-aside-record", given=fault)
        certificate = former


def _verify_signature(certificate: Certificate, signature_fault: SignatureFault | None) -> None:
    is_gone = bool(certificate.get("key_id")) and not certificate.get("signature")
    _require(not is_gone, "signature", None, f"one with the key {certificate.get('key_id')}")
    if signature_fault and certificate.get("signature"):
        fault = signature_fault(certificate)
        _require(fault is None, "signature", fault, "a signature that holds")


def verify_alone(certificate: Certificate) -> None:
    """Raise ``Unverified`` unless the hash, the counts and the verdict of ``certificate`` hold."""
    _require(certificate.get("format") == FORMAT, "format", certificate.get("format"), FORMAT)
    try:
        actual = content_hash(certificate)
    except (ValueError, RecursionError) as error:
        raise _unverified("it cannot be hashed", repr(error), "numbers and texts as JSON has them") from error
    _require(certificate.get("sha256") == actual, "sha256", certificate.get("sha256"), actual)
    try:
        _verify_content(certificate)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _unverified("a field is missing or of another kind", repr(error), "the fields of its format") from error


def standing(certificate: Certificate) -> str:
    if certificate.get("signature"):
        return f"signed with key {certificate['key_id']}"
    return (
        "unsigned"
        if certificate.get("key_id") is None
        else f"its signature with key {certificate['key_id']} is missing"
    )


def _verify_content(certificate: Certificate) -> None:
    for name in (*_SIGNED, "outcome"):
        _require(name in certificate, name, None, "a value")
    number = certificate["sequence"]
    _require(type(number) is int, "sequence", number, "a whole number")
    for name in ("stream", "audit"):
        _require(isinstance(certificate[name], str), name, certificate[name], "a text")
    first = certificate["sequence"] == 1
    _require(first == (certificate["previous_sha256"] is None), "sequence", certificate["sequence"], "1 for the first")
    for part in certificate["partitions"]:
        offsets = part["end"] - part["start"]
        told = sum(part[name] for name in (*_FATES, *_NO_RECORDS)) + sum(part.get(name, 0) for name in _RARE_FATES)
        _require(told == offsets, f"offsets of partition {part['partition']}", told, offsets)
    for name in FATES:
        told, parts = certificate["totals"].get(name, 0), sum(part.get(name, 0) for part in certificate["partitions"])
        _require(told == parts, f"total {name}", told, parts)
    for place, verdicts in certificate["verdicts"].items():
        _require(
            sum(verdicts.values()) == certificate["results"], f"verdicts {place}", verdicts, certificate["results"]
        )
    found = certificate["differences_found"]
    _require(found >= len(certificate["differences"]), "differences", len(certificate["differences"]), found)
    _verify_digests(certificate)
    _verify_handed_on(certificate)
    for fault in finding_faults(certificate):
        raise Unverified.of("certificate-contradicts-itself", given=fault)


def _verify_handed_on(certificate: Certificate) -> None:
    """Require kinds of values with which later audits and the stream can go on: none of them may stop."""
    cut = certificate["cut"]
    numbers = [cut[name] for name in ("generation", "batch", "batch_timestamp_ms")]
    numbers += [certificate.get("declaration", {}).get("stream_version", 1)]
    numbers += [] if cut["frontier_ms"] is None else [cut["frontier_ms"]]
    places = [(part["topic"], part["partition"]) for part in certificate["partitions"]]
    released = certificate.get("released")
    if released is not None:
        generation, batch = released["cut"]
        numbers += [released["before_ms"], generation, batch]
        for topic, ends in released["offsets"].items():
            places += [(topic, int(partition)) for partition in ends]
            numbers += ends.values()
    _require(all(type(one) is int for one in numbers), "cut, version and released", numbers, "whole numbers")
    of_kinds = all(isinstance(topic, str) and type(partition) is int for topic, partition in places)
    _require(of_kinds, "partitions", places, "topics and numbers")
    for part in certificate.get("built_on") or ():
        _require(isinstance(part["audit"], str) and isinstance(part["tables"], dict), "built_on", part, "checksums")


def _verify_digests(certificate: Certificate) -> None:
    """The digests of the log are of the very offsets and records that were counted."""
    for name, told in (
        ("versions", certificate["versions"]),
        ("fingerprint", certificate["declaration"]["fingerprint"]),
    ):
        _require(bool(told), name, told, "a value")
    counted = [[part[name] for name in _COUNTED] for part in certificate["partitions"]]
    digested = [[one[name] for name in _COUNTED] for one in certificate["digests"]["log"]]
    _require(sorted(counted) == sorted(digested), "digests of the log", digested, counted)
    for section in ("log", "published", "tables"):
        for one in certificate["digests"][section]:
            _require(len(one["sha256"]) == _HEX_DIGITS, f"digest of {section}", one["sha256"], "64 digits")


def _require(holds: bool, what: str, given: object, expected: object) -> None:
    if not holds:
        raise _unverified(what, given, expected)


def _unverified(what: str, given: object, expected: object) -> Unverified:
    return Unverified.of("certificate-does-not-hold", given=given, what=what, expected=str(expected))
