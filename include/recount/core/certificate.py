"""A certificate: what an audit proved, as canonical JSON that carries its own hash and that of its predecessor.

The hash is SHA-256 over the canonical form without the field ``sha256``: UTF-8, keys sorted, no spaces, no floats. Each
certificate names the hash of the stream's certificate before it, so that none can be changed or taken away unnoticed
once a later one is kept somewhere else. It is no signature: it does not say who issued it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from recount.core.errors import Terminal

FORMAT = "recount certificate 1"
Certificate = Mapping[str, Any]
_FATES = ("counted", "late", "filtered", "null_key", "dead_lettered")
_RARE_FATES = ("null_value", "deduplicated")
"""Fates that certificates of single aggregations used not to have."""
_NO_RECORDS = ("control", "aborted", "compacted", "expired", "unaccounted")


class Unverified(Terminal):
    """A certificate that does not hold: changed, broken off from its predecessor, or contradicting itself."""


def canonical(document: Mapping[str, Any]) -> bytes:
    """The one text of ``document`` that is hashed."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def fingerprint(document: Mapping[str, Any]) -> str:
    """The SHA-256 of ``document`` without its ``sha256``, in hexadecimal."""
    return hashlib.sha256(canonical({name: part for name, part in document.items() if name != "sha256"})).hexdigest()


def certified(document: Mapping[str, Any], previous: Certificate | None) -> dict[str, Any]:
    """``document`` as the successor of ``previous`` (None: the first of its stream), with its hash."""
    chained = {
        **document,
        "format": FORMAT,
        "sequence": previous["sequence"] + 1 if previous else 1,
        "previous_sha256": previous["sha256"] if previous else None,
    }
    return {**chained, "sha256": fingerprint(chained)}


def verify(certificate: Certificate, others: Iterable[Certificate]) -> list[str]:
    """Check ``certificate`` and the predecessors of it among ``others``; returns what was checked, as sentences.

    Raises ``Unverified`` at the first thing that does not hold. A chain that ends because no predecessor is at hand is
    not a fault: the last sentence says where it ends.
    """
    by_hash = {other.get("sha256"): other for other in others}
    checked = []
    while True:
        _verify_one(certificate)
        checked.append(
            f"{certificate['audit']}: hash, counts and verdict hold (number {certificate['sequence']}, "
            f"{certificate['outcome']})"
        )
        previous = certificate["previous_sha256"]
        if previous is None:
            return [*checked, "the chain is complete: it begins with the stream's first certificate"]
        if previous not in by_hash:
            return [*checked, f"the chain ends here: no certificate with the hash {previous} is at hand"]
        former = by_hash[previous]
        _require(former["stream"] == certificate["stream"], "stream", former["stream"], certificate["stream"])
        _require(former["sequence"] == certificate["sequence"] - 1, "sequence", former["sequence"], "one less")
        certificate = former


def _verify_one(certificate: Certificate) -> None:
    _require(certificate.get("format") == FORMAT, "format", certificate.get("format"), FORMAT)
    actual = fingerprint(certificate)
    _require(certificate["sha256"] == actual, "sha256", certificate["sha256"], actual)
    for part in certificate["partitions"]:
        offsets = part["end"] - part["start"]
        told = sum(part[name] for name in (*_FATES, *_NO_RECORDS)) + sum(part.get(name, 0) for name in _RARE_FATES)
        _require(told == offsets, f"offsets of partition {part['partition']}", told, offsets)
    for name in (*_FATES, *_RARE_FATES):
        told, parts = certificate["totals"].get(name, 0), sum(part.get(name, 0) for part in certificate["partitions"])
        _require(told == parts, f"total {name}", told, parts)
    for place, verdicts in certificate["verdicts"].items():
        _require(
            sum(verdicts.values()) == certificate["results"], f"verdicts {place}", verdicts, certificate["results"]
        )
    found = certificate["differences_found"]
    _require(found >= len(certificate["differences"]), "differences", len(certificate["differences"]), found)
    outcome = "violation" if found else "match"
    _require(certificate["outcome"] == outcome, "outcome", certificate["outcome"], outcome)
    for fault in _contradictions(certificate):
        raise Unverified("the certificate contradicts itself", given=fault, remedy="issue it again from an audit")


def _contradictions(certificate: Certificate) -> Iterator[str]:
    if certificate["outcome"] == "match":
        for place in ("kafka", "delta"):
            wrong = {v: n for v, n in certificate["verdicts"][place].items() if v not in ("match", "expired") and n}
            if wrong:
                yield f"outcome match, but {place} has {wrong}"
        if any(part["unaccounted"] for part in certificate["partitions"]):
            yield "outcome match, but offsets are unaccounted for"
        if not all(miss["explained"] for miss in certificate["grace_misses"]):
            yield "outcome match, but a grace miss is unexplained"


def _require(holds: bool, what: str, given: object, expected: object) -> None:
    if not holds:
        raise Unverified(
            f"the certificate does not hold: {what}",
            given=given,
            expected=str(expected),
            remedy="do not trust this file: take the original, or audit again",
        )
