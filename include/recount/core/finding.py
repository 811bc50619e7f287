"""A finding: one difference of an audit, followed from the audit that saw it first until it is closed.

Its id is the same in every audit that sees it. It is *open* until an audit judges its place again and nothing differs
there (*repaired*), or a person takes it as it is (*accepted*). An acceptance covers what the person saw and nothing
else: when the difference changes, the finding is open again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from recount.core.verdict import Difference

State = Literal["open", "repaired", "accepted"]
ROW_KINDS = ("output", "completeness", "correction")
"""Kinds of differences about one row of a sink: by key and window, or by origin. Others are about a stretch of the log
or of the ledger."""
UNLISTED = "unlisted"
"""The verdict that stands for all differences beyond those that are followed one by one."""
_FAMILIES = {"lost": "missing", "unread": "missing", "duplicated": "surplus", "extra": "surplus"}
_ID_LENGTH = 16


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
    """What ``audit`` says of a finding: how it differs, or (None) that it is repaired.

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
        """The finding in a certificate."""
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
    """Whether who accepted the one has accepted the other: nothing has changed but that copies have gone."""
    same = (accepted.verdict, accepted.expected, accepted.actual) == (now.verdict, now.expected, now.actual)
    return same and _copies(now) <= _copies(accepted)


def difference_document(difference: Difference) -> dict[str, Any]:
    """``difference`` as JSON has it."""
    return {**asdict(difference), "evidence": list(difference.evidence)}


def difference_from(document: Mapping[str, Any]) -> Difference:
    """The difference in a document that may say more."""
    known = {field.name: document[field.name] for field in fields(Difference) if field.name in document}
    return Difference(**{**known, "evidence": tuple(known.get("evidence", ()))})


def _copies(difference: Difference) -> set[str]:
    """Where the copies are; the batches behind a row are evidence too, but not named by every audit."""
    return {place for place in difference.evidence if not place.startswith("batch ")}
