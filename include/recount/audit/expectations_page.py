"""What came of the expectations of an audit, as one self-contained HTML page: no script, no outside file.

Great Expectations' own pages, the Data Docs, take their styles from servers of others and are bare without a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from recount.audit.data_docs import Checked
from recount.audit.page import STYLE
from recount.audit.page_digests import table
from recount.core.instants import told_time

_PAINTED = {"holds": "match", "warns": "late", "FAILED": "violation"}
_HEADS = ("column", "expectation", "type", "state", "unexpected rows")


def expectations_page(
    stream: str,
    audit: str,
    at_ms: int,
    suites: Mapping[str, tuple[str, Sequence[Checked]]],
    disagreements: Sequence[str],
) -> str:
    """The page of ``audit``, tried ``at_ms``; ``suites`` have by name what came of each and its expectations."""
    title = f"{escape(stream)}, {told_time(at_ms)} UTC"
    warnings = "".join(f'<p class="bad">The audit disagrees on {escape(one)}</p>' for one in disagreements)
    sections = "".join(_suite(name, state, checks) for name, (state, checks) in suites.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width">'
        f"<title>{title}: expectations</title><style>{STYLE}</style></head><body>"
        f'<h1>{title}</h1><p class="soft">Expectations of audit {escape(audit)}</p>{warnings}{sections}</body></html>\n'
    )


def _suite(name: str, state: str, checks: Sequence[Checked]) -> str:
    rows = (
        (
            f"<code>{escape(one.column)}</code>",
            escape(one.expectation) + "".join(f"<br><code>{escape(example)}</code>" for example in one.examples),
            f"<code>{escape(one.type)}</code>",
            "holds" if one.holds else f'<b class="{"late" if one.is_warning else "bad"}">{_state(one)}</b>',
            "not known" if one.unexpected is None else f"{one.unexpected:,}",
        )
        for one in sorted(checks, key=lambda one: one.holds)
    )
    badge = f'<span class="badge {_PAINTED[state]}">{state.lower()}</span>'
    return f"<h2>{escape(name)} {badge}</h2>{table(_HEADS, rows)}"


def _state(one: Checked) -> str:
    return "warns" if one.is_warning else "failed"
