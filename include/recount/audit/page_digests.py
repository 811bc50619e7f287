"""The section of a certificate's page with the digests, and the tables that the page is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from recount.core.certificate import Certificate


def digests(certificate: Certificate) -> str:
    """The digests; a certificate of the first format has none."""
    told = certificate.get("digests")
    if told is None:
        return '<h2>Digests</h2><p class="soft">None: a certificate of the first format.</p>'
    records = (
        (
            f"{what} {escape(one['topic'])}-{one['partition']}",
            f"[{one['start']:,}, {one['end']:,})",
            f"{one['records']:,}",
            code(one["sha256"]),
        )
        for what, section in (("log", "log"), ("output", "published"))
        for one in told[section]
    )
    tables = (
        (f"table {escape(one['table'])}", _batches(one), f"{one['rows']:,}", code(one["sha256"]))
        for one in told["tables"]
    )
    return "<h2>Digests</h2>" + table(("of", "offsets or batches", "rows", "sha256"), (*records, *tables))


def _batches(one: Mapping[str, Any]) -> str:
    if "backfills" in one:
        return escape(", ".join(one["backfills"]))
    after = "the first" if one["after"] is None else "after {}/{}".format(*one["after"])
    return "{} to {}/{}".format(after, *one["up_to"])


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """An HTML table; heads are text, cells HTML."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def code(text: str | None) -> str:
    """``text`` as code, or that there is nothing."""
    return f"<code>{escape(text)}</code>" if text is not None else '<span class="soft">nothing</span>'
