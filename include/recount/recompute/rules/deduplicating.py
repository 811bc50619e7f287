"""By what the first of several records with one id is told: "Deduplication" of docs/semantics.md."""

from __future__ import annotations

from recount.core.expression_types import columns_of
from recount.core.nodes import Filter, Node, Source
from recount.core.processing import Deduplicate
from recount.core.stateless import Peek, Repartition, Through


def goes_by_offset(node: Deduplicate) -> bool:
    """Whether the id is the record's own key, which chose the partition: then offsets say who came first.

    Only operators that leave key and fields alone may stand between the topic and the deduplication.
    """
    names = columns_of(node.by)
    return bool(names) and names <= _partition_key(node.input)


def _partition_key(node: Node) -> frozenset[str]:
    match node:
        case Source():
            return frozenset({node.key}) | node.topic.fields_like_the_key
        case Filter() | Peek() | Repartition() | Through():
            return _partition_key(node.input)
    return frozenset()
