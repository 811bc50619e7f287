"""A certificate in words: its summary on a terminal, what explains its differences, and what it covers.

The texts of rows in it are those of differences and grace misses: JSON of a row, with or without its time around it,
``deleted``, or None where there is no row. They are compared field by field, as people read them: ``orders 5 → 6``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from recount.certificate.document import Certificate, standing
from recount.declare.columns import RESULT_TIME
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.runtime.times import quantity, roughly, told_time, told_window

STATES = ("open", "accepted", "repaired")
FIRST = 10
"""Findings that a task's log names."""
LONGEST = 200
"""Characters of a value there."""


def counted(certificate: Certificate) -> dict[str, int]:
    """How many findings are in each state."""
    return {state: certificate["findings"][f"{state}_found"] for state in STATES}


def followed(certificate: Certificate) -> Sequence[Mapping[str, Any]]:
    """The findings, open ones first."""
    return [one for state in STATES for one in certificate["findings"][state]]


def printable(text: object) -> str:
    """``text`` in one line, without what a terminal obeys: keys and values come from anybody who writes to a topic."""
    return said if (said := str(text)).isprintable() else repr(said)


def life_of(one: Mapping[str, Any]) -> str:
    """Return what has become of a finding since which audit, and by whom."""
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
    covers = certificate["covers"]
    first, last, before = covers["from"], covers["to"], covers["judged_before"]
    stretch = f"batch {first['batch']} to {last['batch']} of {told_time(last['batch_timestamp_ms'])}"
    if before is None:
        return f"{stretch}, which is everything from the beginning of the log"
    judged = f"audit {before['audit']} has judged what is before, up to batch {before['batch']}"
    return f"{stretch}; {judged} ({before['outcome']}, certificate {before['certificate']}, sha256 {before['sha256']})"


def summary(certificate: Certificate) -> RenderableType:
    """One screen: the verdicts, the account of the records, and whether it is proved."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    totals = certificate["totals"]
    fates = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in totals.items() if name != "records")
    table.add_row("records", f"{totals['records']:,}: {fates}")
    for place, verdicts in certificate["verdicts"].items():
        table.add_row(place, ", ".join(f"{n:,} {verdict}" for verdict, n in verdicts.items()) or "nothing to judge")
    table.add_row("differences", f"{certificate['differences_found']:,}")
    for state, n in counted(certificate).items():
        table.add_row(f"findings {state}", f"{n:,}")
    table.add_row("grace misses", f"{certificate['grace_misses_found']:,}")
    if beyond := certificate.get("beyond_look_back_found"):
        table.add_row(
            "too late for this audit", f"{quantity(beyond, 'record')}: what they would have changed is not computed"
        )
    if erasures := certificate.get("erasures"):
        last = erasures[-1]
        after = f"the last one after batch {last['generation']}/{last['batch']}, by {last['by']}: {last['reason']}"
        table.add_row("erased keys", _line(f"{len(erasures):,}, {after}"))
    for one in certificate.get("lookups", ()):
        table.add_row(one["lookup"], f"{one['misses']:,} of {one['records']:,} records find no row")
    for one in certificate.get("set_aside", ()):
        place = f"{one['topic']}-{one['partition']}@{one['offset']}"
        table.add_row("set aside", _line(f"{place}, by {one['by']} at {told_time(one['at_ms'])}: {one['because']}"))
    if certificate.get("begins_after_erasure"):
        table.add_row("begins", "at the last erasure: what was erased cannot be recomputed")
    table.add_row("signature", standing(certificate))
    warnings = certificate.get("warnings", [])
    for warning in warnings:
        table.add_row("warning", _line(warning))
    good = "bold yellow" if warnings else "bold green"
    title = f"{certificate['stream']}: {certificate['outcome']}{', with warnings' if warnings else ''}"
    return Group(Text(title, style=good if certificate["outcome"] == "match" else "bold red"), table)


def explained(certificate: Certificate, key: str | None, window_start: int | None) -> RenderableType:
    """The findings and grace misses of ``key`` and the window at ``window_start`` (None: of all)."""

    def wanted(one: Mapping[str, Any]) -> bool:
        return key in (None, one["key"]) and window_start in (None, one["window_start"])

    parts: list[RenderableType] = []
    for one in filter(wanted, followed(certificate)):
        style = "bold red" if one.get("state", "open") == "open" else "bold"
        parts += [
            _line(f"{one['verdict']}: {one['kind']}, {one['place']}{place_of(one)}", style),
            *([_line(f"  finding  {one['finding']}, {life_of(one)}")] if "state" in one else []),
            Text(
                "  expected {}\n  actual   {}".format(*map(printable, sides_in_words(one["expected"], one["actual"])))
            ),
            _line(f"  cause    {one['cause']}"),
            *(_line(f"  - {place}") for place in one["evidence"]),
        ]
    for one in filter(wanted, certificate["grace_misses"]):
        parts += [
            _line(f"grace miss{_sink(one)}{place_of(one)}", "bold yellow"),
            _line(f"  published → with unlimited grace: {change_in_words(one['published'], one['complete'])}"),
            *(_line(f"  - late: {late_in_words(place)}") for place in one["late"]),
        ]
    return Group(*parts) if parts else Text("nothing to explain: no difference and no grace miss")


def _line(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)


def _sink(one: Mapping[str, Any]) -> str:
    return f", topic {one['sink']}" if one.get("sink") else ""


NO_ROW = "no row"
_TIME, _ROW, _DELETED = "timestamp_ms", "row", "deleted"
_TIMES = {WINDOW_START, WINDOW_END, RESULT_TIME, _TIME}
_NAMES = {RESULT_TIME: "time", _TIME: "time"}
_MILLISECONDS = re.compile(r"(?<![\w.])(-?\d+) ms\b")
_FIRST_TIME_MS = 10**11
_MARGIN = re.compile(r"(.*) \+(\d+) ms")


@dataclass(frozen=True, kw_only=True)
class Change:
    """A field, and what both rows have there; None: nothing."""

    name: str
    old: str | None
    new: str | None


def changes(old: str | None, new: str | None) -> Sequence[Change] | None:
    """The fields that differ between ``old`` and ``new``; None where one of them is the text of no row.

    >>> changes('{"n":1,"at":5}', '{"n":2,"at":5}')
    [Change(name='n', old='1', new='2')]
    """
    before, after = _fields(old), _fields(new)
    if before is None or after is None:
        return None
    names = dict.fromkeys([*before, *after])
    return [
        Change(name=_NAMES.get(name, name), old=before.get(name), new=after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    ]


def change_in_words(old: str | None, new: str | None) -> str:
    """The fields that differ, each with both values; ``no row`` in place of a row that is not there."""
    found = changes(old, new)
    if not found:
        return f"{old or NO_ROW} → {new or NO_ROW}"
    if _is_none(old):
        return f"{NO_ROW} → {_listed(found, old=False)}"
    if _is_none(new):
        return f"{_listed(found, old=True)} → {NO_ROW}"
    return ", ".join(f"{one.name} {_or_none(one.old)} → {_or_none(one.new)}" for one in found)


def sides_in_words(expected: str | None, actual: str | None) -> tuple[str | None, str | None]:
    """The fields that differ as either side has them; the texts themselves where these are no rows or none differs."""
    found = changes(expected, actual)
    if found is None:
        return times_in_words(expected), times_in_words(actual)
    if not found:
        return expected, actual
    return (
        expected if _is_none(expected) else _listed(found, old=True),
        actual if _is_none(actual) else _listed(found, old=False),
    )


def times_in_words(text: str | None) -> str | None:
    """``text`` with what it says in milliseconds as times; less than three years are a duration.

    >>> times_in_words("last read at 1363564800000 ms"), times_in_words("idle after 269663 ms")
    ('last read at 2013-03-18 00:00:00', 'idle after 4 min 29 s')
    """
    return text and _MILLISECONDS.sub(lambda found: _time_or_duration(int(found[1])), text)


def _time_or_duration(ms: int) -> str:
    return told_time(ms) if abs(ms) >= _FIRST_TIME_MS else roughly(ms)


def late_in_words(place: str) -> str:
    """A late record as a grace miss names it, the margin in words: ``orders-0@7 +3 min``."""
    found = _MARGIN.fullmatch(place)
    return f"{found[1]} +{roughly(int(found[2]))}" if found else place


def _is_none(text: str | None) -> bool:
    return text is None or text == _DELETED


def _listed(found: Sequence[Change], *, old: bool) -> str:
    values = [(one.name, one.old if old else one.new) for one in found]
    return ", ".join(f"{name} {value}" for name, value in values if value is not None) or "nothing"


def _or_none(value: str | None) -> str:
    return "none" if value is None else value


def _fields(text: str | None) -> Mapping[str, str] | None:
    """The fields of the row that are not null, as text; none of no row; None where it is another text."""
    if text is None or text == _DELETED:
        return {}
    try:
        document = json.loads(text, parse_float=str)
    except ValueError:
        return None
    if not isinstance(document, Mapping):
        return None
    row = document.get(_ROW)
    if isinstance(row, Mapping) and document.keys() <= {_ROW, _TIME}:
        document = {**row, **({_TIME: document[_TIME]} if _TIME in document else {})}
    return {name: _text(name, value) for name, value in document.items() if value is not None}


def _text(name: str, value: object) -> str:
    if name in _TIMES and type(value) is int:
        return told_time(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
