"""What rows have of the keys of records, and which topics need one on every record: asked by each implementation."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from recount.core.changelogs import ToTable
from recount.core.joins import StreamStreamJoin, StreamTableJoin
from recount.core.nodes import KEY, Node, Source, WindowedAggregate
from recount.core.output import encode_value
from recount.core.processing import Process
from recount.core.topics import Topic
from recount.core.topology import Topology


def key_text(topic: Topic, raw: bytes) -> str | None:
    """What rows have of the key ``raw`` of a record of ``topic``; None where it is no text and must be one.

    Of keys with fields see ``key_of``.
    """
    if topic.key_form == "bytes":
        return base64.b64encode(raw).decode()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def key_of(fields: Mapping[str, str | int | None]) -> str | None:
    """What rows have of a key with ``fields``: of one its text, of several a JSON object; None where all are null.

    >>> key_of({"customer": 7}), key_of({"customer": 7, "region": "EU"})
    ('7', '{"customer":7,"region":"EU"}')
    """
    if all(value is None for value in fields.values()):
        return None
    [*values] = fields.values()
    return str(values[0]) if len(values) == 1 else encode_value(fields).decode()


def raw_key(topic: Topic, text: str) -> bytes | None:
    """The key of the records of ``topic`` of which rows have ``text``; None where none can have it.

    Keys with fields cannot be told from it: many bytes can say the same.
    """
    if topic.key_form == "text":
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def topics_needing_a_key(topology: Topology) -> frozenset[str]:
    """The topics whose own record key groups or joins records, so that a record without one is bad."""
    topics: set[str] = set()
    for node in topology.nodes():
        for above in _keyed_inputs(node):
            found = above
            while found.key == KEY and not isinstance(found, Source) and len(found.inputs) == 1:
                [found] = found.inputs
            if isinstance(found, Source) and found.key == KEY:
                topics.add(found.topic.name)
    return frozenset(topics)


def _keyed_inputs(node: Node) -> tuple[Node, ...]:
    """The inputs of which the operator drops null keys; an outer side of a join keeps them."""
    match node:
        case WindowedAggregate() | ToTable() | Process():
            return node.inputs
        case StreamStreamJoin(kind="inner"):
            return node.inputs
        case StreamStreamJoin(kind="left"):
            return (node.right,)
        case StreamTableJoin(kind="inner", by=None):
            return (node.left,)
    return ()
