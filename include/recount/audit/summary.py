"""A certificate on a terminal: the summary of an audit, and what explains its differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from recount.audit.row_changes import change_in_words, late_in_words, sides_in_words
from recount.audit.told_findings import counted, followed, life_of, place_of, printable
from recount.core.certificate import Certificate, standing
from recount.core.instants import told_time
from recount.core.quantities import quantity


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
