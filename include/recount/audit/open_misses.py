"""What a dry run found, in a file for whoever started it: how many results a backfill would correct now."""

from __future__ import annotations

import json
from pathlib import Path

from recount.core.settings import Settings


def summary_file(settings: Settings, stream: str) -> Path:
    """Where the last dry run of ``stream`` left its summary."""
    return Path(settings.reports) / "backfills" / f"{stream}.json"


def write_summary(settings: Settings, stream: str, audit: str, changes: int, unpublished: int) -> None:
    """Write how many results would change as of ``audit``, and how many earlier backfills were never published."""
    document = {"audit": audit, "changes": changes, "unpublished": unpublished}
    target = summary_file(settings, stream)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_suffix(".draft")
    draft.write_text(json.dumps(document), encoding="utf-8")
    draft.replace(target)
