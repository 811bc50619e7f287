"""Values that their type cannot hold: which expressions can make one, and which operators evaluate them.

A record for which an expression makes one is set aside, like one for which a Python function raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from math import ceil, inf, isfinite, prod
from types import MappingProxyType

from recount.core.changelogs import TableAggregate, TableFilter
from recount.core.errors import require
from recount.core.evaluation import OutOfRange, evaluate
from recount.core.expression_types import columns_of, type_of
from recount.core.expressions import ARITHMETIC, Call, Column, Expression, Literal
from recount.core.joins import StreamTableJoin
from recount.core.nodes import Filter, Node, SelectKey, WindowedAggregate, WithFields
from recount.core.processing import Deduplicate
from recount.core.schema import LONG, LONG_MAX, FieldType
from recount.core.stateless import Select

Largest = Mapping[str, int | float]
NOTHING_KNOWN: Largest = MappingProxyType({})
_NUMBERS, _CHOOSE = ("long", "double", "decimal"), ("when", "coalesce")


def expressions_of(node: Node) -> list[Expression]:
    """The expressions that ``node`` evaluates for each row of its first input, in the order in which it does.

    Of an aggregate over some records only, the value of the others is not evaluated.
    """
    match node:
        case Filter(predicate=tree) | TableFilter(predicate=tree) | SelectKey(by=tree) | Deduplicate(by=tree):
            return [tree]
        case WithFields(added=trees) | Select(chosen=trees):
            return list(trees.values())
        case StreamTableJoin(by=tree):
            return [] if tree is None else [tree]
        case WindowedAggregate(aggregates=aggregates):
            by = []
        case TableAggregate(aggregates=aggregates, by=tree):
            by = [tree]
        case _:
            return []
    taken = [(Literal(None) if one.of is None else one.of, one.where) for one in aggregates.values()]
    return [*by, *(of if where is None else Call("when", (where, of, Literal(None))) for of, where in taken)]


def risky_expressions(node: Node) -> list[Expression]:
    """Those of ``expressions_of`` that can have a value that its type cannot hold."""
    trees = expressions_of(node)
    return [tree for tree in trees if is_risky(tree, node.inputs[0].fields)]


def is_risky(tree: Expression, fields: Mapping[str, FieldType], known: Largest = NOTHING_KNOWN) -> bool:
    """Whether a part of ``tree`` can have a value that its type cannot hold.

    ``known`` has of fields a number that none of their values comes to on either side of 0, where that is known.
    """
    if not isinstance(tree, Call):
        return False
    return can_exceed(tree, fields, known) or any(is_risky(argument, fields, known) for argument in tree.arguments)


def can_exceed(tree: Call, fields: Mapping[str, FieldType], known: Largest = NOTHING_KNOWN) -> bool:
    """Whether ``tree`` itself can, where none of its parts does."""
    kind = type_of(tree, fields)
    is_quotient = tree.operator == "/" and type_of(tree.arguments[1], fields) != LONG
    is_computed = is_quotient or tree.operator in ARITHMETIC
    if kind is None or not (is_computed or (kind.kind == "decimal" and tree.operator in _CHOOSE)):
        return False
    reach = _reach(tree, fields, known)
    return reach > _room(kind) if kind.kind != "double" else not isfinite(reach)


def require_in_range(trees: Iterable[Expression]) -> None:
    """Refuse a part of one of ``trees`` that reads no field, and whose value no type can hold."""
    for tree in trees:
        if not isinstance(tree, Call):
            continue
        require_in_range(tree.arguments)
        if not columns_of(tree):
            _require_value(tree)


def _require_value(tree: Call) -> None:
    try:
        evaluate(tree, {}, {})
    except OutOfRange as error:
        require(
            False,
            "constant",
            given=f"{tree}: {error}",
            expected="a number that its type can hold",
            remedy="write another constant: no record gets past this one",
        )


def _options(tree: Call) -> tuple[Expression, ...]:
    """What the value of ``tree`` is made of: but for a condition, its arguments."""
    return tree.arguments[1:] if tree.operator == "when" else tree.arguments


def _room(kind: FieldType) -> int | float:
    """The largest LONG, or a number that no other value of ``kind`` comes to."""
    match kind.kind:
        case "double":
            return inf
        case "long":
            return LONG_MAX
    return int(10 ** (kind.precision - kind.scale))


def _largest(tree: Expression, fields: Mapping[str, FieldType], known: Largest) -> int | float:
    """A number that no value of ``tree`` comes to on either side of 0; a constant, and a DOUBLE, may come to it."""
    kind = type_of(tree, fields)
    if kind is None or kind.kind not in _NUMBERS:
        return 0
    match tree:
        case Literal(Decimal() as number):
            return ceil(abs(number))
        case Literal(int() | float() as number):
            return abs(number)
        case Call():
            return min(_room(kind), _reach(tree, fields, known))
        case Column(name) if name in known:
            return known[name]
    return _room(kind) + 1 if kind.kind == "long" else _room(kind)


def _reach(tree: Call, fields: Mapping[str, FieldType], known: Largest) -> int | float:
    """The same of what ``tree`` makes of its parts, whether its type holds that or not."""
    parts = [_largest(one, fields, known) for one in _options(tree)]
    match tree.operator:
        case "+" | "-":
            return sum(parts)
        case "*":
            return prod(parts)
        case "/":
            divisor = type_of(tree.arguments[1], fields)
            # one that is not 0 is at least its smallest place
            return parts[0] * 10**divisor.scale if divisor is not None and divisor.kind != "double" else inf
    # a constant may come to its bound
    return max(part + (not columns_of(one)) for part, one in zip(parts, _options(tree), strict=True))
