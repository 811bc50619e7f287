"""Which column of an operator's state has the key of its rows, so that the rows of one key can be found in it."""

from __future__ import annotations

from recount.core.changelogs import TableAggregate
from recount.core.joins import StreamTableJoin, TableTableJoin
from recount.core.nodes import Node
from recount.core.processing import Deduplicate
from recount.spark.polars_expressions import field_column


def key_column(node: Node, state: str) -> str:
    """The column of ``state`` of ``node`` that has the key: that of the input whose rows these are.

    Winners of a deduplication have their id only, groups of a table their own key, which is that of the results.
    """
    match node, state:
        case Deduplicate(), "winners":
            return "id"
        case TableAggregate(), "groups":
            return "group"
        case TableAggregate(), _:
            return "row"
        case TableTableJoin(), "results":
            return "__key"
        case StreamTableJoin(right=right), "table":
            return field_column(right.key)
    port = 1 if state == "right" else 0
    return field_column(node.inputs[port].key)
