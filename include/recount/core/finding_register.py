"""The register of a stream's findings: what all its audits and acceptances add up to, and what an audit adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from recount.core.finding import Acceptance, Finding, Sighting, covers, finding_id
from recount.core.verdict import Difference

Register = Mapping[str, Finding]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The findings of a stream after an audit: ``repaired`` are those that this audit closed."""

    open: tuple[Finding, ...] = ()
    accepted: tuple[Finding, ...] = ()
    repaired: tuple[Finding, ...] = ()
    repaired_before: int = 0


def register(
    sightings: Iterable[Sighting], acceptances: Iterable[Acceptance], before: Register | None = None
) -> Register:
    """All findings by their ids; ``before`` are those before the first sighting.

    An acceptance counts from the audit on that it names, so that no clock of another machine decides its place.
    """
    taken: dict[tuple[str, str], Acceptance] = {}
    for acceptance in sorted(acceptances, key=lambda one: one.at_ms):
        taken.setdefault((acceptance.finding, acceptance.audit), acceptance)
    found: dict[str, Finding] = dict(before or {})
    for sighting in sorted(sightings, key=lambda one: one.at_ms):
        former = found.get(sighting.finding)
        if sighting.difference is not None:
            found[sighting.finding] = _seen(former, sighting, sighting.difference, taken)
        elif former:
            found[sighting.finding] = replace(
                former,
                state="repaired",
                repaired_audit=sighting.audit,
                repaired_ms=sighting.at_ms,
                acceptance=None,
            )
    return found


def sightings(
    stream: str,
    differences: Sequence[Difference],
    *,
    audit: str,
    at_ms: int,
    cut: tuple[int, int],
    repaired: Iterable[str] = (),
    since: tuple[int, int] | None = None,
) -> list[Sighting]:
    """What ``audit`` says: each of the ``differences`` that it saw, and the ids that it found ``repaired``."""
    seen: dict[str, Difference | None] = {}
    for difference in differences:
        seen.setdefault(finding_id(stream, difference), difference)
    for finding in repaired:
        seen.setdefault(finding, None)
    return [
        Sighting(finding=finding, audit=audit, at_ms=at_ms, cut=cut, difference=difference, since=since)
        for finding, difference in seen.items()
    ]


def found_repaired(
    known: Register,
    stream: str,
    differences: Sequence[Difference],
    cut: tuple[int, int],
    is_in_order: Callable[[Finding], bool],
) -> tuple[str, ...]:
    """The ids of the ``known`` findings that an audit closes: none of its ``differences``, and ``is_in_order``.

    ``is_in_order`` says whether the finding's place was judged again and nothing differs there. An audit that judged
    less far than the last one that saw a finding does not close it.
    """
    seen = {finding_id(stream, difference) for difference in differences}
    alive = (one for one in known.values() if one.state != "repaired" and one.id not in seen)
    return tuple(one.id for one in alive if one.last_cut <= cut and is_in_order(one))


def standing(findings: Register, audit: str) -> Standing:
    """How the findings stand after ``audit``, oldest first."""
    ordered = sorted(findings.values(), key=lambda one: (one.first_ms, one.difference.window_start or 0, one.id))
    repaired = [one for one in ordered if one.state == "repaired"]
    return Standing(
        open=tuple(one for one in ordered if one.state == "open"),
        accepted=tuple(one for one in ordered if one.state == "accepted"),
        repaired=tuple(one for one in repaired if one.repaired_audit == audit),
        repaired_before=sum(one.repaired_audit != audit for one in repaired),
    )


def _seen(
    former: Finding | None,
    sighting: Sighting,
    difference: Difference,
    taken: Mapping[tuple[str, str], Acceptance],
) -> Finding:
    """The audit that sees a difference first knows most of its cause: it recomputes the records behind it."""
    acceptance = taken.get((sighting.finding, sighting.audit))
    is_same = former is not None and covers(former.difference, difference)
    still = former.acceptance if former and is_same else None
    acceptance = acceptance or still
    return Finding(
        id=sighting.finding,
        state="accepted" if acceptance else "open",
        difference=replace(difference, cause=former.difference.cause) if former and is_same else difference,
        first_audit=former.first_audit if former else sighting.audit,
        first_ms=former.first_ms if former else sighting.at_ms,
        last_audit=sighting.audit,
        last_ms=sighting.at_ms,
        since=former.since if former else sighting.since,
        last_cut=max(former.last_cut, sighting.cut) if former else sighting.cut,
        acceptance=acceptance,
    )
