"""Which column of a carried frame has the key of its rows, so that the rows of one key can be found in it."""

from __future__ import annotations

from recount.core.changelogs import TableAggregate
from recount.core.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.core.nodes import Node
from recount.core.processing import Deduplicate

KEY_NAME, ID_NAME = "key", "id"
"""What the columns of a frame are called that have the key, and what deduplication goes by."""
GROUP, IDENTITY = "__group", "__identity"


def key_column(node: Node, what: str) -> str:
    """The column of the frame ``what`` of ``node`` that has the key: that of the input whose rows these are.

    A group of a table is the key of the results, and of no row above.
    """
    match node, what:
        case (StreamStreamJoin(right=right), "side-1") | (TableTableJoin(right=right), "table-right"):
            return right.key
        case StreamTableJoin(right=right), "table":
            return right.key
        case TableAggregate(), "groups":
            return GROUP
    return node.inputs[0].key


def id_column(node: Node) -> str | None:
    """The column that has what makes two records of a deduplication the same; None of any other operator."""
    return IDENTITY if isinstance(node, Deduplicate) else None
