"""Rules of values that their type cannot hold: which expression makes one, and why a record is set aside.

Source: "Values that do not fit" of docs/semantics.md. They are the same for the columns of Spark and of DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from recount.declare import expressions as expr
from recount.declare.expression_types import type_of
from recount.declare.operators.joins import StreamTableJoin
from recount.declare.operators.nodes import Filter, Node, SelectKey, WindowedAggregate, WithFields
from recount.declare.operators.processing import Deduplicate
from recount.declare.operators.stateless import Select
from recount.declare.operators.tables import TableAggregate, TableFilter
from recount.declare.schema import FieldType
from recount.recompute.spark_columns import spark_type

_COMPUTES = frozenset({"+", "-", "*", "/"})
_MOST_SAID = 200


@dataclass(frozen=True, kw_only=True)
class RangeRules:
    """The rules in columns of one engine: its ``functions``, and what makes a ``column`` of an expression."""

    functions: Any
    column: Callable[[expr.Expression, Mapping[str, FieldType]], Any]

    def reason_of(self, node: Node) -> Any:
        """Why a row is set aside that reaches ``node``, by the first of its expressions that is out of range.

        Null where none is, None where none ever is.
        """
        functions, fields = self.functions, node.inputs[0].fields
        kinds = [kind for tree in _evaluated(node) if (kind := self.kind_beyond(tree, fields)) is not None]
        if not kinds:
            return None
        kind = functions.coalesce(*kinds)
        operator = node.in_reasons if isinstance(node, WindowedAggregate) else str(node)
        told = functions.concat(functions.lit("out-of-range: "), kind, functions.lit(f" in {operator[:_MOST_SAID]}"))
        return functions.when(functions.isnotnull(kind), told)

    def kind_beyond(self, tree: expr.Expression, fields: Mapping[str, FieldType]) -> Any:
        """The kind of the first part of ``tree`` that is evaluated and out of range: null where none is, or None."""
        if not isinstance(tree, expr.Call):
            return None
        functions = self.functions
        if tree.operator == "when":
            condition, *options = tree.arguments
            then, otherwise = (self._chosen_beyond(option, tree, fields) for option in options)
            chosen = None
            if then is not None or otherwise is not None:
                is_true = self.column(condition, fields).cast("boolean")
                chosen = functions.when(is_true, self._or_null(then)).otherwise(self._or_null(otherwise))
            return self._first_of([self.kind_beyond(condition, fields), chosen])
        if tree.operator == "coalesce":
            found = None
            for option in reversed(tree.arguments):
                later = None if found is None else functions.when(functions.isnull(self.column(option, fields)), found)
                found = self._first_of([self._chosen_beyond(option, tree, fields), later])
            return found
        parts = [self.kind_beyond(argument, fields) for argument in tree.arguments]
        return self._first_of([*parts, self._own_kind(tree, fields)])

    def _own_kind(self, tree: expr.Call, fields: Mapping[str, FieldType]) -> Any:
        functions = self.functions
        kinds = [type_of(argument, fields) for argument in tree.arguments]
        kind = type_of(tree, fields)
        if tree.operator not in _COMPUTES or kind is None or None in kinds:
            return None
        value = self.column(tree, fields)
        if kind.kind == "double":
            is_exact = all(one is not None and one.kind != "double" for one in kinds)
            if tree.operator == "/" and is_exact:
                return None
            is_finite = (value < functions.lit(inf)) & (value > functions.lit(-inf))
            return functions.when(~is_finite, functions.lit(kind.kind))
        given = functions.lit(True)
        for argument in tree.arguments:
            given &= functions.isnotnull(self.column(argument, fields))
        return functions.when(given & functions.isnull(value), functions.lit(kind.kind))

    def _chosen_beyond(self, option: expr.Expression, tree: expr.Call, fields: Mapping[str, FieldType]) -> Any:
        """The same of ``option`` where ``tree`` chooses it, whose type may have less room before the point."""
        functions, kind, given = self.functions, type_of(tree, fields), type_of(option, fields)
        lost = None
        if kind is not None and kind.kind == "decimal" and given is not None and given.scale < kind.scale:
            value = self.column(option, fields)
            is_lost = functions.isnotnull(value) & functions.isnull(value.try_cast(spark_type(kind)))
            lost = functions.when(is_lost, functions.lit(kind.kind))
        return self._first_of([self.kind_beyond(option, fields), lost])

    def _first_of(self, kinds: Sequence[Any]) -> Any:
        found = [kind for kind in kinds if kind is not None]
        return self.functions.coalesce(*found) if found else None

    def _or_null(self, kind: Any) -> Any:
        return self.functions.lit(None).cast("string") if kind is None else kind


def can_be(node: Node) -> bool:
    """Whether an expression of ``node`` can be out of range, as far as its operators say."""
    return any(_computes(tree) for tree in _evaluated(node))


def _computes(tree: expr.Expression) -> bool:
    if not isinstance(tree, expr.Call):
        return False
    return tree.operator in {*_COMPUTES, "when", "coalesce"} or any(map(_computes, tree.arguments))


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
