"""Which streams a key can be erased from, and what a key given as text is in each."""

from __future__ import annotations

from recount.audit.shape import flow_of
from recount.core.errors import Terminal
from recount.core.nodes import Filter, SelectKey, Sink, Source, WithFields
from recount.core.schema import LONG_MAX, LONG_MIN
from recount.core.stateless import FlatMap, Foreach, Merge, Peek, Repartition, Select, Through
from recount.core.topology import Topology, Written
from recount.spark.plan import plan_of

_STATELESS = (
    *(Source, Sink, Through, Filter, WithFields, SelectKey, Select),
    *(FlatMap, Peek, Repartition, Foreach, Merge),
)
_KINDS = ("string", "long")
"""Keys whose text is the same in Spark, Polars, Delta and on Kafka."""


def objection_to(topology: Topology) -> str | None:
    """Why no key can be erased from ``topology``; None where one can.

    A key must be found in all that its operators remember, and in what the audit hands on for each of them.
    """
    if flow_of(topology) is not None:
        if plan_of(topology) is None:
            return "its windows are kept by the operator graph, whose rows are not found by key yet"
    else:
        keeping = [str(node) for node in topology.nodes() if not isinstance(node, _STATELESS)]
        if keeping:
            return (
                f"[{keeping[0]}] remembers rows, which are not found by key yet: a key is erased from single"
                " aggregations over tumbling or hopping windows, and from topologies without state"
            )
    for node in topology.written:
        kind = node.fields[node.key].kind
        if kind not in _KINDS:
            return f"the key of {node} is a {kind}: keys that are texts or longs can be erased"
    return None


def text_in(written: Written, key: str) -> str | None:
    """``key`` as the text of the key of ``written``; None where it has no such key.

    Raises ``Terminal`` for a long that is written otherwise than everywhere else.
    """
    if written.fields[written.key].kind != "long":
        return key
    try:
        number = int(key)
    except ValueError:
        return None
    if not LONG_MIN <= number <= LONG_MAX:
        return None
    if str(number) != key:
        raise Terminal(
            f"the key of {written.topic.name} is a long",
            given=key,
            expected=str(number),
            remedy=f"recount erase --key {number}",
        )
    return key
