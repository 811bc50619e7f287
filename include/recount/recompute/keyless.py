"""Records of a flow that have no key to be grouped by, from the declaration where it says so.

A record without a key to be grouped by does not advance stream time, so a pass that follows stream time must know it.
Where nulls of certain source fields say it, one pass over the records is enough; otherwise Spark evaluates the steps
first and a second pass follows.
"""

from __future__ import annotations

from collections.abc import Mapping

from recount.declare.expressions import Call, Column, Expression, Literal
from recount.declare.operators.nodes import Filter, SelectKey, WithFields
from recount.recompute.rules.number_rules import can_be
from recount.recompute.single_flow import Flow

Nulls = frozenset[str]
"""Columns of the source: a value is null exactly when one of them is. None in its place: that is not known."""


def keyless_when(flow: Flow) -> Nulls | None:
    """The source's columns of which a null leaves a good record without a key; None where only the steps can tell."""
    known: dict[str, Nulls | None] = {name: frozenset({name}) for name in flow.source.fields}
    if flow.needs_record_key:
        known[flow.key] = frozenset()  # without one the record is bad
    is_filtered = False
    for step in flow.steps:
        match step:
            case Filter():
                is_filtered = True
            case WithFields(added=added):
                known |= {name: null_when(tree, known) for name, tree in added.items()}
            case SelectKey(key=key, by=by):
                known[key] = null_when(by, known)
    nulls = known[flow.key]
    # a record that is filtered out, or set aside, advances stream time, key or no key
    is_set_aside = any(can_be(node) for node in (*flow.steps, flow.aggregate))
    return None if nulls and (is_filtered or is_set_aside) else nulls


def null_when(tree: Expression, known: Mapping[str, Nulls | None]) -> Nulls | None:
    """The source's columns of which a null makes ``tree`` null, given those of the columns that it reads."""
    match tree:
        case Column(name):
            return known[name]
        case Literal(value):
            return None if value is None else frozenset()
        case Call("upper" | "lower", (argument,)):
            return null_when(argument, known)
        case Call("coalesce", arguments):
            never: Nulls = frozenset()
            return never if never in [null_when(argument, known) for argument in arguments] else None
    return None
