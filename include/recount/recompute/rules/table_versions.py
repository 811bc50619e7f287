"""Which tables can be read as of a time: "Joins" of docs/semantics.md."""

from __future__ import annotations

from recount.core.changelogs import TableFilter, ToTable
from recount.core.nodes import Node, WithFields
from recount.core.stateless import Select


def has_versions(table: Node) -> bool:
    """Whether ``table`` was declared versioned, and what follows looks at each version by itself."""
    while isinstance(table, WithFields | Select | TableFilter):
        table = table.input
    return isinstance(table, ToTable) and table.versioned
