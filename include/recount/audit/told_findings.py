"""Findings and what a certificate covers, in words, for the page and the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recount.audit.row_changes import sides_in_words
from recount.core.certificate import Certificate
from recount.core.instants import told_time, told_window
from recount.core.quantities import quantity

STATES = ("open", "accepted", "repaired")
FIRST = 10
"""Findings that a task's log names."""
LONGEST = 200
"""Characters of a value there."""


def counted(certificate: Certificate) -> dict[str, int]:
    """How many findings are in each state; nothing of a certificate that lists none."""
    section = certificate.get("findings")
    return {state: section[f"{state}_found"] for state in STATES} if section else {}


def followed(certificate: Certificate) -> Sequence[Mapping[str, Any]]:
    """The findings, open ones first, or else the differences of the audit."""
    section = certificate.get("findings")
    if not section:
        return list(certificate["differences"])
    return [one for state in STATES for one in section[state]]


def printable(text: object) -> str:
    """``text`` in one line, without what a terminal obeys: keys and values come from whoever writes to a topic."""
    return said if (said := str(text)).isprintable() else repr(said)


def life_of(one: Mapping[str, Any]) -> str:
    """What has become of a finding since which audit, and by whom."""
    seen = f"first seen by audit {one['first_audit']}, last by {one['last_audit']}" if "first_audit" in one else ""
    match one.get("state"):
        case "accepted":
            return f"accepted by {one['accepted_by']} at {told_time(one['accepted_ms'])}: {one['reason']} ({seen})"
        case "repaired":
            return f"repaired, as audit {one['repaired_audit']} found ({seen})"
        case "open":
            return f"open ({seen})"
    return ""


def place_of(one: Mapping[str, Any]) -> str:
    """Which row a difference is about, after its place: key and window, or key and origin."""
    if one["window_start"] is None:
        return "".join(f", {said}" for said in (one["key"], one.get("origin")) if said is not None)
    return f", {one['key']} in {told_window(one['window_start'], one['window_end'])} UTC"


def violation_in_words(certificate: Certificate) -> str:
    """Why an audit is red, for who sees only the task's log or the notification: the first open findings."""
    stream, audit, section = certificate["stream"], certificate["audit"], certificate["findings"]
    of_before = sum(one["first_audit"] != audit for one in section["open"])
    before = f", {of_before} of them since an earlier audit" if of_before else ""
    lines = [f"violation: {quantity(section['open_found'], 'open finding')} of {stream}{before}"]
    for one in section["open"][:FIRST]:
        place = _shortly(f"{one['place']}{place_of(one)}")
        lines.append(f"- finding {one['finding']}: {one['verdict']}, {one['kind']}, {place}")
        expected, actual = sides_in_words(one["expected"], one["actual"])
        told = {
            "expected": expected or "",
            "actual": actual or "",
            "cause": one["cause"] or "",
            "at": ", ".join(one["evidence"]),
        }
        lines += [f"    {name:8} {_shortly(text)}" for name, text in told.items() if text]
    if section["open_found"] > FIRST:
        lines.append(f"- and {section['open_found'] - FIRST:,} more")
    return "\n".join([*lines, f"all of them: recount findings --stream {stream}, or the certificate {audit}"])


def _shortly(text: str) -> str:
    return printable(text[:LONGEST]) + "..." * (len(text) > LONGEST)


def covered_in_words(certificate: Certificate) -> str:
    """From where to where the audit judged, what was judged before by which certificate, which sinks began later."""
    declared = certificate["declaration"]
    fields = map(_field_since, declared.get("added_fields", ()))
    return "; ".join([_judged(certificate), *map(_since, declared.get("added_sinks", ())), *fields])


def _since(added: Mapping[str, Any]) -> str:
    generation, batch = added["after_batch"]
    offsets = [f"{t}-{p}@{offset}" for t, parts in added["from_offsets"].items() for p, offset in parts.items()]
    return f"sink {added['sink']} was added, and is judged, after batch {generation}/{batch}: from {', '.join(offsets)}"


def _field_since(added: Mapping[str, Any]) -> str:
    generation, batch = added["after_batch"]
    offsets = ", ".join(f"{added['topic']}-{p}@{offset}" for p, offset in added["from_offsets"].items())
    return f"field {added['field']} was added, and is read, after batch {generation}/{batch}: from {offsets}"


def _judged(certificate: Certificate) -> str:
    covers = certificate.get("covers")
    if not covers:
        return str(certificate.get("seed") or "judged from the beginning of the log")
    first, last, before = covers["from"], covers["to"], covers["judged_before"]
    stretch = f"batch {first['batch']} to {last['batch']} of {told_time(last['batch_timestamp_ms'])}"
    if before is None:
        return f"{stretch}, which is everything from the beginning of the log"
    judged = f"audit {before['audit']} has judged what lies before, up to batch {before['batch']}"
    return f"{stretch}; {judged} ({before['outcome']}, certificate {before['certificate']}, sha256 {before['sha256']})"
