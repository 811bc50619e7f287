"""Which streams a key can be erased from, and what a key given as text is in each."""

from __future__ import annotations

import re

from recount.audit.shape import flow_of
from recount.core.nodes import Filter, SelectKey, Sink, Source, WithFields
from recount.core.schema import LONG_MAX, LONG_MIN
from recount.core.stateless import FlatMap, Foreach, Merge, Peek, Repartition, Select, Through
from recount.core.topology import Topology, Written
from recount.spark.plan import plan_of

_STATELESS = (
    *(Source, Sink, Through, Filter, WithFields, SelectKey, Select),
    *(FlatMap, Peek, Repartition, Foreach, Merge),
)
_LONG = re.compile(r"0|-?[1-9][0-9]{0,18}")


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
    return None


def text_in(written: Written, key: str) -> str | None:
    """``key`` as the text of the key of ``written``, which is a text or a long; None where it can have no such key.

    Spark, Polars, Delta and Kafka have the same text of either. ``007`` is no text of a long.
    """
    if written.fields[written.key].kind != "long":
        return key
    is_long = _LONG.fullmatch(key) is not None and LONG_MIN <= int(key) <= LONG_MAX
    return key if is_long else None
