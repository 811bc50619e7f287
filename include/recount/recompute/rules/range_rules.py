"""Rules of values that their type cannot hold: which expression or sum makes one, and why a record is set aside.

Source: "Values that do not fit" of docs/semantics.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from recount.declare import expressions as expr
from recount.declare.expression_types import type_of
from recount.declare.operators.joins import StreamTableJoin
from recount.declare.operators.nodes import Filter, Node, SelectKey, WindowedAggregate, WithFields
from recount.declare.operators.processing import Deduplicate
from recount.declare.operators.stateless import Select
from recount.declare.operators.tables import TableAggregate, TableFilter
from recount.declare.schema import FieldType
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column
from recount.recompute.rules.expression_rules import column
from recount.recompute.spark_columns import spark_type

WIDE = "decimal(38, 0)"
"""Carries a sum of LONG."""
MOST_DIGITS = 38
PLAIN_DIGITS = 28
"""Of decimals of so many digits it takes 10**10 of the largest before a sum has more than 38: no window has them."""
LARGE, UNIT, MOST_DOUBLE = 2.0**900, 2.0**64, 1.7976931348623157e308
"""From ``LARGE`` on a DOUBLE is added up in units of ``UNIT``."""
_COMPUTES = frozenset({"+", "-", "*", "/"})
_MOST_SAID = 200


def reason_of(node: Node) -> Column | None:
    """Why a row is set aside that reaches ``node``, by the first of its expressions that is out of range.

    Null where none is, None where none ever is.
    """
    fields = node.inputs[0].fields
    kinds = [kind for tree in _evaluated(node) if (kind := kind_beyond(tree, fields)) is not None]
    if not kinds:
        return None
    kind = F.coalesce(*kinds)
    operator = node.in_reasons if isinstance(node, WindowedAggregate) else str(node)
    told = F.concat(F.lit("out-of-range: "), kind, F.lit(f" in {operator[:_MOST_SAID]}"))
    return F.when(F.isnotnull(kind), told)


def kind_beyond(tree: expr.Expression, fields: Mapping[str, FieldType]) -> Column | None:
    """The kind of the first part of ``tree`` that is evaluated and out of range: null where none is, or None."""
    if not isinstance(tree, expr.Call):
        return None
    if tree.operator == "when":
        condition, *options = tree.arguments
        then, otherwise = (_chosen_beyond(option, tree, fields) for option in options)
        chosen = None
        if then is not None or otherwise is not None:
            is_true = column(condition, fields).cast("boolean")
            chosen = F.when(is_true, _or_null(then)).otherwise(_or_null(otherwise))
        return _first_of([kind_beyond(condition, fields), chosen])
    if tree.operator == "coalesce":
        found = None
        for option in reversed(tree.arguments):
            later = None if found is None else F.when(F.isnull(column(option, fields)), found)
            found = _first_of([_chosen_beyond(option, tree, fields), later])
        return found
    parts = [kind_beyond(argument, fields) for argument in tree.arguments]
    return _first_of([*parts, _own_kind(tree, fields)])


def _own_kind(tree: expr.Call, fields: Mapping[str, FieldType]) -> Column | None:
    kinds = [type_of(argument, fields) for argument in tree.arguments]
    kind = type_of(tree, fields)
    if tree.operator not in _COMPUTES or kind is None or None in kinds:
        return None
    value = column(tree, fields)
    if kind.kind == "double":
        is_exact = all(one is not None and one.kind != "double" for one in kinds)
        if tree.operator == "/" and is_exact:
            return None
        is_finite = (value < F.lit(inf)) & (value > F.lit(-inf))
        return F.when(~is_finite, F.lit(kind.kind))
    given = F.lit(True)
    for argument in tree.arguments:
        given &= F.isnotnull(column(argument, fields))
    return F.when(given & F.isnull(value), F.lit(kind.kind))


def _chosen_beyond(option: expr.Expression, tree: expr.Call, fields: Mapping[str, FieldType]) -> Column | None:
    """The same of ``option`` where ``tree`` chooses it, whose type may have less room before the point."""
    kind, given = type_of(tree, fields), type_of(option, fields)
    lost = None
    if kind is not None and kind.kind == "decimal" and given is not None and given.scale < kind.scale:
        value = column(option, fields)
        is_lost = F.isnotnull(value) & F.isnull(value.try_cast(spark_type(kind)))
        lost = F.when(is_lost, F.lit(kind.kind))
    return _first_of([kind_beyond(option, fields), lost])


def _first_of(kinds: Sequence[Column | None]) -> Column | None:
    found = [kind for kind in kinds if kind is not None]
    return F.coalesce(*found) if found else None


def _or_null(kind: Column | None) -> Column:
    return F.lit(None).cast("string") if kind is None else kind


def _evaluated(node: Node) -> list[expr.Expression]:
    """In the order in which the operator evaluates them; of an aggregate, for the records that it takes."""
    match node:
        case Filter(predicate=predicate) | TableFilter(predicate=predicate):
            return [predicate]
        case SelectKey(by=by) | Deduplicate(by=by):
            return [by]
        case StreamTableJoin(by=found_by):
            return [] if found_by is None else [found_by]
        case WithFields(added=made) | Select(chosen=made):
            return list(made.values())
        case WindowedAggregate(aggregates=aggregates) | TableAggregate(aggregates=aggregates):
            trees = [node.by] if isinstance(node, TableAggregate) else []
            for one in aggregates.values():
                of = expr.lit(None) if one.of is None else one.of
                trees.append(of if one.where is None else expr.when(one.where, of, None))
            return trees
    return []


def is_carried_apart(given: FieldType) -> bool:
    """Whether a sum of values of the type ``given`` is carried in two parts: what fits the type, and what is beyond.

    So what it comes to depends on no order, no partition and no cut between nights.
    """
    return given.kind == "double" or (given.kind == "decimal" and given.precision > PLAIN_DIGITS)


def beyond_type(kind: FieldType) -> str:
    """The type of what is beyond a sum of ``kind``."""
    return "double" if kind.kind == "double" else "long"
