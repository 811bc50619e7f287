"""Findings that a person accepts, in a table of their own: no audit writes it, and no acceptance is ever removed."""

from __future__ import annotations

import time

import polars as pl
from deltalake import write_deltalake

from recount.audit.register import read_register
from recount.core.errors import Terminal
from recount.core.finding import Finding
from recount.core.settings import Settings
from recount.core.tables import Tables


def accept(settings: Settings, stream: str, finding: str, *, by: str, reason: str) -> Finding:
    """Accept the open ``finding`` of ``stream`` as its last audit saw it; returns it.

    Raises ``Terminal`` without a name or a reason, and when there is no such finding or it is closed already.
    """
    [accepted] = accept_all(settings, stream, [finding], by=by, reason=reason)
    return accepted


def accept_all(settings: Settings, stream: str, findings: list[str], *, by: str, reason: str) -> list[Finding]:
    """Accept all of ``findings`` or, when one of them cannot be accepted, none."""
    for what, given in (("name", by), ("reason", reason)):
        if not given.strip():
            raise Terminal(
                f"no {what}",
                given=given,
                expected=f"the {what} of who accepts" if what == "name" else "why the difference may stay",
                remedy="recount findings accept --finding ID --by NAME --reason TEXT",
            )
    if not findings:
        raise Terminal("no finding", given=findings, expected="at least one id", remedy=_list(stream))
    known = read_register(settings, stream)
    wanted = [_open(known.get(finding), finding, stream) for finding in dict.fromkeys(findings)]
    at_ms = time.time_ns() // 1_000_000
    rows = [
        {"finding": one.id, "audit": one.last_audit, "by": by.strip(), "reason": reason.strip(), "at_ms": at_ms}
        for one in wanted
    ]
    write_deltalake(Tables(settings.data).acceptances(stream), pl.DataFrame(rows), mode="append")
    return wanted


def _open(found: Finding | None, finding: str, stream: str) -> Finding:
    if found is None:
        raise Terminal("no such finding", given=finding, expected=f"a finding of {stream}", remedy=_list(stream))
    if found.state != "open":
        taken = found.acceptance
        given = f"accepted by {taken.by}: {taken.reason}" if taken else f"repaired, as {found.repaired_audit} says"
        raise Terminal(
            f"finding {finding} is closed", given=given, expected="an open finding", remedy="nothing is left to do"
        )
    return found


def _list(stream: str) -> str:
    return f"recount findings --stream {stream}"
