"""What must hold between a certificate's findings, its differences and its outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recount.core.finding import difference_from, finding_id

_FIRST_FORMAT = "recount certificate 1"
_PLACES = ("kafka", "delta")
_IN_ORDER = ("match", "expired")


def finding_faults(certificate: Mapping[str, Any]) -> Iterator[str]:
    """Where the section ``findings`` contradicts itself, the outcome, or what the audit saw.

    A certificate of the first format may have none: then only its own differences count.
    """
    if _is_without(certificate):
        yield from _by_differences(certificate)
        return
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
    if _is_without(former) or version_of(former) != version_of(certificate):
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
    """The version of the stream that ``certificate`` is about."""
    return int(certificate.get("declaration", {}).get("stream_version", 1))


def _is_without(certificate: Mapping[str, Any]) -> bool:
    return certificate["format"] == _FIRST_FORMAT and "findings" not in certificate


def _by_differences(certificate: Mapping[str, Any]) -> Iterator[str]:
    outcome = "violation" if certificate["differences_found"] else "match"
    if certificate["outcome"] != outcome:
        yield f"outcome {certificate['outcome']}, but {certificate['differences_found']} differences"
    if outcome == "match":
        yield from _not_accepted({**certificate, "findings": {"accepted": ()}})


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
    """Differences that are neither open nor accepted; what is beyond the length of the lists cannot be told."""
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
