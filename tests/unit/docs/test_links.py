"""Every link of a page leads to a file of the project, and to a heading in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.unit.docs.shown_commands import ROOT

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]


def headings(text: str) -> set[str]:
    """As the anchors of a page are made of them."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    shown = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in shown}


def broken(file: Path, text: str) -> Iterator[str]:
    """The links of ``text``, which lies in ``file``, that lead nowhere."""
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        path, _, anchor = link.partition("#")
        if link.startswith(("http://", "https://")):
            continue
        target = file.parent / path if path else file
        if not target.exists() or (anchor and anchor not in headings(target.read_text())):
            yield f"{file.relative_to(ROOT)}: {link}"


def test_every_link_leads_somewhere() -> None:
    assert [link for file in PAGES for link in broken(file, file.read_text())] == []
