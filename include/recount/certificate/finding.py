"""Differences, grace misses and accounts of offsets of audits, and the register of a stream's findings.

A finding is a difference that is followed until it is closed. Its id is the same in every audit that sees it. It is
*open* until an audit judges its place again and nothing differs there (*repaired*), or a person takes it as it is
(*accepted*). An acceptance covers what the person saw and nothing else: when the difference changes, the finding is
open again. The register is what all audits and acceptances add up to, and what an audit adds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

MAX_LATE_NAMED = 100
"""Of the late records of one grace miss."""
Outcome = Literal["match", "violation"]
"""``match``: every output is there exactly once, as the log says. Grace misses do not count against it."""
State = Literal["open", "repaired", "accepted"]
ROW_KINDS = ("output", "completeness", "correction")
"""Kinds of differences about one row of a sink: by key and window, or by origin. Others are about a range of the log
or of the ledger."""
UNLISTED = "unlisted"
"""The verdict that stands for all differences beyond those that are followed one by one."""
_FAMILIES = {"lost": "missing", "unread": "missing", "duplicated": "surplus", "extra": "surplus"}
_ID_LENGTH = 16


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One difference between what the log says and what was found: a violation of exactly-once.

    ``kind`` is what was checked: ``output``, ``late ledger``, ``dead letters``, ``offsets``, ``batch ledger`` or
    ``topic``.
    ``place`` is where it was found. ``key``, ``window_start`` and ``window_end`` (ms) are None where there is none.
    ``origin``, of a row that is no window's result, names the records that it was made of.
    ``evidence`` names offsets as ``topic-partition@offset`` and batches as ``batch generation/batch``; of a topic, ids.
    """

    kind: str
    place: str
    verdict: str
    key: str | None = None
    window_start: int | None = None
    window_end: int | None = None
    expected: str | None = None
    actual: str | None = None
    cause: str = ""
    evidence: tuple[str, ...] = ()
    origin: str | None = None


@dataclass(frozen=True, kw_only=True)
class GraceMiss:
    """A result that unlimited grace would change, and the late records that would change it.

    ``late`` names them as ``topic-partition@offset +margin ms``, at most the first ``MAX_LATE_NAMED`` of
    ``late_records``. The miss is explained when the stream's late ledger holds exactly the records that are missing; of
    topologies beyond one aggregation, when it holds records that can have made the difference. There a row without a
    window is named by ``origin``, and ``sink`` is its topic. ``complete`` None: with unlimited grace there is no such
    row.
    """

    key: str | None
    window_start: int | None
    window_end: int | None
    published: str | None
    complete: str | None
    late_records: int
    late: tuple[str, ...]
    explained: bool
    sink: str | None = None
    origin: str | None = None


@dataclass(frozen=True, kw_only=True)
class PartitionAccount:
    """Every offset of one partition's audited range, each in exactly one column; ``unaccounted`` must be 0.

    ``control`` are transaction markers, ``aborted`` records of aborted transactions, ``expired`` records that Kafka no
    longer holds, ``compacted`` those that compaction took.
    """

    topic: str
    partition: int
    start: int
    end: int
    counted: int
    late: int
    filtered: int
    null_key: int
    dead_lettered: int
    null_value: int = 0
    deduplicated: int = 0
    waiting: int = 0
    control: int = 0
    aborted: int = 0
    compacted: int = 0
    expired: int = 0
    stream_time_ms: int | None = None

    @property
    def records(self) -> int:
        refused = self.null_key + self.null_value + self.deduplicated + self.dead_lettered
        return self.counted + self.late + self.filtered + self.waiting + refused

    @property
    def unaccounted(self) -> int:
        explained = self.records + self.control + self.aborted + self.compacted + self.expired
        return self.end - self.start - explained


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Who took ``finding`` as ``audit`` saw it, why, and when (ms)."""

    finding: str
    audit: str
    by: str
    reason: str
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """Statement of ``audit`` about a finding: how it differs, or (None) that it is repaired.

    It judged the batches after ``since`` (None: all) up to ``cut``.
    """

    finding: str
    audit: str
    at_ms: int
    cut: tuple[int, int]
    difference: Difference | None
    since: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A difference and its life; ``difference`` is as ``last_audit`` saw it, which judged up to ``last_cut``.

    ``first_audit`` judged the batches after ``since`` (None: all).
    """

    id: str
    state: State
    difference: Difference
    first_audit: str
    first_ms: int
    last_audit: str
    last_ms: int
    last_cut: tuple[int, int]
    since: tuple[int, int] | None = None
    repaired_audit: str | None = None
    repaired_ms: int | None = None
    acceptance: Acceptance | None = None

    @property
    def is_of_row(self) -> bool:
        """Whether an audit can judge it again by reading that row."""
        return self.difference.kind in ROW_KINDS and self.difference.verdict != UNLISTED

    def document(self) -> dict[str, Any]:
        taken = self.acceptance
        return {
            **difference_document(self.difference),
            "finding": self.id,
            "state": self.state,
            "first_audit": self.first_audit,
            "first_certificate": f"{self.first_audit}.json",
            "first_ms": self.first_ms,
            "last_audit": self.last_audit,
            "last_ms": self.last_ms,
            "repaired_audit": self.repaired_audit,
            "repaired_ms": self.repaired_ms,
            "accepted_by": taken.by if taken else None,
            "reason": taken.reason if taken else None,
            "accepted_ms": taken.at_ms if taken else None,
        }


def finding_id(stream: str, difference: Difference) -> str:
    """The id under which every audit of ``stream`` knows ``difference``.

    A row is known by kind, place, key, window and origin; what is about the log or the ledger by its evidence, or by
    what was expected where there is none. Verdicts of one family (lost, unread; duplicated, extra) are one finding.
    """
    is_row = difference.kind in ROW_KINDS and difference.verdict != UNLISTED
    about = [] if is_row else list[str | None](difference.evidence) or [difference.expected]
    identity = [
        stream,
        difference.kind,
        difference.place,
        difference.key,
        difference.window_start,
        difference.window_end,
        difference.origin,
        _FAMILIES.get(difference.verdict, difference.verdict),
        about,
    ]
    text = json.dumps(identity, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_ID_LENGTH]


def covers(accepted: Difference, now: Difference) -> bool:
    """Whether who accepted the one has accepted the other: nothing has changed but that copies were removed."""
    same = (accepted.verdict, accepted.expected, accepted.actual) == (now.verdict, now.expected, now.actual)
    return same and _copies(now) <= _copies(accepted)


def difference_document(difference: Difference) -> dict[str, Any]:
    return {**asdict(difference), "evidence": list(difference.evidence)}


def difference_from(document: Mapping[str, Any]) -> Difference:
    """The difference in a document that may say more."""
    known = {field.name: document[field.name] for field in fields(Difference) if field.name in document}
    return Difference(**{**known, "evidence": tuple(known.get("evidence", ()))})


def _copies(difference: Difference) -> set[str]:
    """Where the copies are; the batches behind a row are evidence too, but not named by every audit."""
    return {place for place in difference.evidence if not place.startswith("batch ")}


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
                former, state="repaired", repaired_audit=sighting.audit, repaired_ms=sighting.at_ms, acceptance=None
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
    """Return what ``audit`` says: each of the ``differences`` that it saw, and the ids that it found ``repaired``."""
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
    former: Finding | None, sighting: Sighting, difference: Difference, taken: Mapping[tuple[str, str], Acceptance]
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
