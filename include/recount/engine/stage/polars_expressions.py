"""Expressions compiled to Polars, with the meaning of ``recount.declare.evaluation.evaluate``."""

import operator
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, localcontext
from functools import partial, reduce
from typing import Any

import polars as pl
import pyarrow as pa

from recount.declare.aggregates import fits
from recount.declare.evaluation import can_exceed, evaluate, is_risky
from recount.declare.expression_types import columns_of, type_of
from recount.declare.expressions import ARITHMETIC, Call, Column, Expression, Literal
from recount.declare.schema import DOUBLE, MAX_DECIMAL_PRECISION, FieldType

_OPERATORS: dict[str, Any] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_EXACT = Context(prec=100)
_SURELY_FITS = 0.999e38
"""More whole numbers than this have 39 digits, or so many that their DOUBLE does not say it."""


def exact(name: str, left: pl.Expr, right: pl.Expr, kind: FieldType) -> pl.Expr:
    """``left`` and ``right``, decimals or LONG, under the operator ``name``: null where ``kind`` cannot hold it.

    Polars itself fails where an operand has no room at the scale of the result: 100 times 0.01 at 18 places each is 1,
    but 100 with the 36 places of the product has 39 digits.
    """
    made = pl.Decimal(kind.precision, kind.scale)
    function = partial(_exact, name, kind)
    return pl.map_batches([left, right], function, return_dtype=made, is_elementwise=True)


def _exact(name: str, kind: FieldType, operands: list[pl.Series]) -> pl.Series:
    rows = next((len(one) for one in operands if len(one) != 1), 1)
    left, right = (one if len(one) == rows else one.new_from_index(0, rows) for one in operands)
    scales = [None, None] if name == "*" else [kind.scale, kind.scale]
    one, other = (_unscaled(given, scale) for given, scale in zip((left, right), scales, strict=True))
    if one.null_count() == left.null_count() and other.null_count() == right.null_count():
        most = [_largest(given) for given in (one, other)]
        if (most[0] * most[1] if name == "*" else sum(most)) < _SURELY_FITS:
            return _of_scale(_OPERATORS[name](one, other), kind.scale)
    about = _OPERATORS[name](one.cast(pl.Float64), other.cast(pl.Float64)).abs()
    is_sure = (about < _SURELY_FITS).fill_null(False)
    nothing = pl.Series([None], dtype=pl.Int128)
    sure = [operand.zip_with(is_sure, nothing) for operand in (one, other)]
    made = _of_scale(_OPERATORS[name](*sure), kind.scale)
    unsure = ~is_sure & left.is_not_null() & right.is_not_null()
    if not unsure.any():
        return made
    places = unsure.arg_true()
    with localcontext(_EXACT):
        totals = [_OPERATORS[name](*pair) for pair in zip(left[places], right[places], strict=True)]
    held = [total if fits(total, kind) else None for total in totals]
    return made.scatter(places, pl.Series(held, dtype=made.dtype))


def _unscaled(given: pl.Series, scale: int | None) -> pl.Series:
    """``given`` as whole numbers of its smallest place, or of the place ``scale``; null where it has no room there."""
    if given.dtype.is_integer():
        given = given.cast(pl.Decimal(MAX_DECIMAL_PRECISION, 0))
    if scale is not None:
        given = given.cast(pl.Decimal(MAX_DECIMAL_PRECISION, scale), strict=False)
    return given.to_physical()


def _largest(given: pl.Series) -> int:
    ends: list[Any] = [given.min(), given.max()]
    return int(max(abs(end or 0) for end in ends))


def _of_scale(unscaled: pl.Series, scale: int) -> pl.Series:
    """The decimals that have these ``unscaled`` numbers: their bytes are the same."""
    whole = unscaled.cast(pl.Decimal(MAX_DECIMAL_PRECISION, 0)).to_arrow()
    kind = pa.decimal128(MAX_DECIMAL_PRECISION, scale)
    found = pa.Array.from_buffers(kind, len(whole), whole.buffers(), whole.null_count, whole.offset)
    return pl.Series(unscaled.name, found)


_INFIX: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
}
_DIGITS_OF_LONG = 19
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SCALARS: dict[str, pl.DataType] = {
    "string": pl.String(),
    "long": pl.Int64(),
    "double": pl.Float64(),
    "boolean": pl.Boolean(),
}


def polars_type(field_type: FieldType) -> pl.DataType:
    if field_type.kind == "decimal":
        return pl.Decimal(field_type.precision, field_type.scale)
    if field_type.element is not None:
        return pl.List(polars_type(field_type.element))
    return _SCALARS[field_type.kind]


def field_column(name: str) -> str:
    """The column that carries the record's field ``name``: no field can be taken for a column of the engine's own."""
    return f"field {name}"


def compiled(tree: Expression, fields: Mapping[str, FieldType]) -> pl.Expr:
    """``tree`` as a Polars expression over the columns of the record's ``fields``."""
    taken = _taken(tree)
    if taken is not tree:
        declared = type_of(tree, fields)
        return _as(taken, declared, fields) if declared else compiled(taken, fields)
    match tree:
        case Column(name):
            return pl.col(field_column(name))
        case Literal(value):
            return _literal(value)
        case Call("coalesce", options):
            return pl.coalesce([_as(option, type_of(tree, fields), fields) for option in options])
        case Call("when", (condition, then, otherwise)):
            kind = type_of(tree, fields)
            chosen = pl.when(compiled(condition, fields)).then(_as(then, kind, fields))
            return chosen.otherwise(_as(otherwise, kind, fields))
        case Call(name, (left, right)) if name in _MIRRORED and _is_constant(left) and not _is_constant(right):
            # of pl.lit(0) == pl.coalesce(column, 0) Polars makes one row
            return compiled(Call(_MIRRORED[name], (right, left)), fields)
        case Call(name, arguments):
            values = [compiled(argument, fields) for argument in arguments]
            result = type_of(tree, fields)
            if name in {"and", "or", "not"}:
                values = [value.cast(pl.Boolean) for value in values]  # the null constant has no type of its own
            if name in ARITHMETIC and result is not None and result.kind == "decimal":
                return _decimal(tree, values, result, fields)
            if name in ARITHMETIC and result is not None and result.kind == "long":
                # Polars would let a result beyond 64 bits wrap
                return _apply(name, [value.cast(pl.Int128) for value in values]).cast(pl.Int64, strict=False)
            return _apply(name, values)
    raise AssertionError(tree)


def out_of_range(tree: Expression, fields: Mapping[str, FieldType]) -> pl.Expr | None:
    """Whether an evaluated part of ``tree`` has a value that its type cannot hold; None where that can never be.

    ``compiled`` gives null, infinity or no number there.
    """
    if not isinstance(tree, Call) or not is_risky(tree, fields):
        return None
    match tree:
        case Call("when", (condition, then, otherwise)):
            branches = [_chosen_out_of_range(tree, branch, fields) for branch in (then, otherwise)]
            if not columns_of(condition):
                return branches[0 if evaluate(condition, {}) is True else 1]
            chosen = pl.when(compiled(condition, fields)).then(_or_never(branches[0])).otherwise(_or_never(branches[1]))
            is_never = all(branch is None for branch in branches)
            return _any_of(out_of_range(condition, fields), None if is_never else chosen)
        case Call("coalesce", (first, *others)):
            rest = None if not others else _chosen_out_of_range(tree, Call("coalesce", tuple(others)), fields)
            after = None if rest is None else compiled(first, fields).is_null() & rest
            return _any_of(_chosen_out_of_range(tree, first, fields), after)
    found = _any_of(*(out_of_range(argument, fields) for argument in tree.arguments))
    if not can_exceed(tree, fields):
        return found
    made = compiled(tree, fields)
    if type_of(tree, fields) == DOUBLE:
        return _any_of(found, ~made.is_finite().fill_null(True))
    given = [compiled(argument, fields).is_not_null() for argument in tree.arguments]
    return _any_of(found, reduce(operator.and_, given) & made.is_null())


def _chosen_out_of_range(tree: Expression, option: Expression, fields: Mapping[str, FieldType]) -> pl.Expr | None:
    """The same of ``option`` where ``tree``, a when or a coalesce, takes it."""
    kind, given = type_of(tree, fields), type_of(option, fields)
    is_lost = None
    if _may_be_lost(given, kind):
        is_lost = compiled(option, fields).is_not_null() & _as(option, kind, fields).is_null()
    return _any_of(out_of_range(option, fields), is_lost)


def _any_of(*tests: pl.Expr | None) -> pl.Expr | None:
    found = [test for test in tests if test is not None]
    return reduce(operator.or_, found) if found else None


def _or_never(test: pl.Expr | None) -> pl.Expr:
    return pl.lit(False) if test is None else test


def _digits(kind: FieldType) -> int:
    """How many digits a LONG or decimal can have before its point."""
    return kind.precision - kind.scale if kind.kind == "decimal" else _DIGITS_OF_LONG


def _may_be_lost(given: FieldType | None, kind: FieldType | None) -> bool:
    """Whether a value of the decimal type ``given`` can have no room in the decimal type ``kind``."""
    if given is None or kind is None or kind.kind != "decimal":
        return False
    return _digits(given) > _digits(kind)


def _as(tree: Expression, kind: FieldType | None, fields: Mapping[str, FieldType]) -> pl.Expr:
    """``tree`` in the type ``kind``; null where that has no room for it."""
    return compiled(tree, fields) if kind is None else compiled(tree, fields).cast(polars_type(kind), strict=False)


def _decimal(tree: Call, values: list[pl.Expr], kind: FieldType, fields: Mapping[str, FieldType]) -> pl.Expr:
    """Arithmetic of decimals and LONG: Polars has room for all operands and results of few digits."""
    given = [type_of(argument, fields) for argument in tree.arguments]
    known = [one for one in given if one is not None]
    has_room = all(_digits(one) + kind.scale <= MAX_DECIMAL_PRECISION for one in known)
    if len(known) == len(given) and (can_exceed(tree, fields) or not has_room):
        left, right = values
        return exact(tree.operator, left, right, kind)
    # Polars rounds a product to the larger scale of its factors; the exact one has the scale of both
    return _apply(tree.operator, [value.cast(polars_type(kind)) for value in values])


def _is_constant(tree: Expression) -> bool:
    return not columns_of(_taken(tree))


def _taken(tree: Expression) -> Expression:
    """The branch that ``tree`` takes for every record, by a constant; else ``tree``.

    Polars would choose too, and makes one row instead of a column where the other branch is ``pl.lit(0) == column``.
    """
    match tree:
        case Call("when", (condition, then, otherwise)) if not columns_of(condition):
            return _taken(then if evaluate(condition, {}) is True else otherwise)
        case Call("coalesce", (first, *_)) if not columns_of(first) and evaluate(first, {}) is not None:
            return first
    return tree


def _literal(value: Any) -> pl.Expr:
    if isinstance(value, Decimal):
        return pl.lit(value, pl.Decimal(38, max(0, -int(value.as_tuple().exponent))))
    if type(value) is int:
        return pl.lit(value, pl.Int64())
    return pl.lit(value)


def _apply(name: str, values: list[pl.Expr]) -> pl.Expr:
    match name:
        case "is_null":
            return values[0].is_null()
        case "not":
            return ~values[0]
        case "upper":
            return values[0].str.to_uppercase()
        case "lower":
            return values[0].str.to_lowercase()
        case "contains":
            return pl.when(values[1].is_not_null()).then(values[0].list.contains(values[1]))
        case "/":
            dividend, divisor = (value.cast(pl.Float64) for value in values)
            # Polars multiplies by the reciprocal where all divisors are one constant (3 / 5 would be
            # 0.6000000000000001): a column of zeros makes it a column
            return pl.when(divisor != 0).then(dividend / (divisor + pl.int_range(pl.len()) * 0))
        case _:
            return reduce(_INFIX[name], values)
