"""Logs of Delta tables, read and written by hand: what no library would write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

Action = dict[str, Any]


def said(path: str, kind: str) -> list[Any]:
    """What all commits of the table say by actions of that ``kind``, such as ``add``, oldest first."""
    commits = sorted((Path(path) / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for commit in commits for line in commit.read_text().splitlines()]
    return [action[kind] for action in actions if kind in action]


def commit(path: str, actions: Sequence[Mapping[str, Any]]) -> str:
    """Write the next commit; returns the name of its file."""
    name = f"{DeltaTable(path).version() + 1:020}.json"
    (Path(path) / "_delta_log" / name).write_text("".join(f"{json.dumps(one)}\n" for one in actions))
    return name
