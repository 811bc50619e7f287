"""The value of an expression for one record: the Polars and Spark compilations are tested against it.

A record for which an expression makes a value that its type cannot hold is set aside, like one for which a Python
function raises.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from decimal import Context, Decimal, localcontext
from math import ceil, inf, isfinite, prod
from types import MappingProxyType
from typing import Any

from recount.declare.aggregates import fits
from recount.declare.expression_types import columns_of, type_of
from recount.declare.expressions import ARITHMETIC, JSON_SIZE, PLAIN_SIZE, Call, Column, Expression, Literal
from recount.declare.operators.joins import StreamTableJoin
from recount.declare.operators.nodes import Filter, Node, SelectKey, WindowedAggregate, WithFields
from recount.declare.operators.processing import Deduplicate
from recount.declare.operators.stateless import Select
from recount.declare.operators.tables import TableAggregate, TableFilter
from recount.declare.output import encoded_size
from recount.declare.schema import DOUBLE, LONG, LONG_MAX, FieldType
from recount.runtime.errors import require

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_EXACT = Context(prec=100)
_MOST_SHOWN = 200
Largest = Mapping[str, int | float]
NOTHING_KNOWN: Largest = MappingProxyType({})
_NUMBERS, _CHOOSE = ("long", "double", "decimal"), ("when", "coalesce")


class OutOfRange(ValueError):
    """An expression has a value that its type, of the ``kind``, cannot hold."""

    def __init__(self, tree: Expression, value: object, kind: FieldType, operands: list[Any]) -> None:
        self.kind = kind.kind
        shown = str(tree)
        shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]} …"
        super().__init__(f"{shown} of {', '.join(map(str, operands))} is {value}, which no {kind} can hold")


def evaluate(tree: Expression, record: Mapping[str, Any], fields: Mapping[str, FieldType] | None = None) -> Any:
    """The value of ``tree`` for ``record``: the reference meaning.

    Raises ``OutOfRange`` where a part of it that is evaluated has a value that its type cannot hold: a LONG of more
    than 64 bits, a DOUBLE that is infinite or no number, and where the types of the ``fields`` are given, a decimal
    of more than 38 digits.
    """
    match tree:
        case Column(name):
            return record[name]
        case Literal(value):
            return value
        case Call("when", (condition, then, otherwise)):
            chosen = then if evaluate(condition, record, fields) is True else otherwise
            value = evaluate(chosen, record, fields)
            return _held(tree, value, [value], fields)
        case Call("coalesce", options):
            values = (value for option in options if (value := evaluate(option, record, fields)) is not None)
            value = next(values, None)
            return _held(tree, value, [value], fields)
        case Call() if tree.operator in (JSON_SIZE, PLAIN_SIZE):
            assert fields is not None, "sizes are measured by types"
            return encoded_size(tree, record, fields)
        case Call(name, arguments):
            operands = [evaluate(argument, record, fields) for argument in arguments]
            made = _apply(name, operands)
            return _held(tree, made, operands, fields) if name == "/" or name in ARITHMETIC else made
    raise AssertionError(tree)


def _held(tree: Expression, value: Any, operands: list[Any], fields: Mapping[str, FieldType] | None) -> Any:
    """``value`` of ``tree``, a decimal with all places of its type; raises ``OutOfRange`` where that cannot hold it."""
    match value:
        case float() if not isfinite(value):
            raise OutOfRange(tree, value, DOUBLE, operands)
        case int() if not fits(value, LONG):
            raise OutOfRange(tree, value, LONG, operands)
        case Decimal() if fields is not None:
            kind = type_of(tree, fields)
            assert kind is not None, "only the null constant has no type"
            if not fits(value, kind):
                raise OutOfRange(tree, value, kind, operands)
            return value.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    return value


def _apply(name: str, values: list[Any]) -> Any:
    if name == "is_null":
        return values[0] is None
    if name in {"and", "or"}:
        deciding = name == "or"
        return deciding if deciding in values else None if None in values else not deciding
    if None in values:
        return None
    if name == "not":
        return not values[0]
    if name in {"upper", "lower"}:
        return getattr(values[0], name)()
    if name == "contains":
        return values[1] in values[0]
    if name == "/":
        divisor = float(values[1])
        return None if divisor == 0 else float(values[0]) / divisor
    left, right = _comparable(*values)
    if name in _COMPARISONS:
        return _COMPARISONS[name](left, right)
    with localcontext(_EXACT):
        return _ARITHMETIC[name](left, right)


def _comparable(left: Any, right: Any) -> tuple[Any, Any]:
    """With a DOUBLE on one side, both are DOUBLE: Python would compare it with a LONG exactly."""
    if isinstance(left, float) and isinstance(right, Decimal | int):
        return left, float(right)
    if isinstance(left, Decimal | int) and isinstance(right, float):
        return float(left), right
    return left, right


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
    """Return those of ``expressions_of`` that can have a value that its type cannot hold."""
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
        require(False, "constant-out-of-its-type", given=f"{tree}: {error}")


def _options(tree: Call) -> tuple[Expression, ...]:
    """Return what the value of ``tree`` is made of: its arguments, except a condition."""
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
