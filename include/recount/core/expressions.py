"""Expressions over a record's fields, written once and compiled three times.

``col("amount") > 100`` is a small tree. The interpreter evaluates it (``evaluate``), the stream compiles it to Polars
(``recount.spark.polars_expressions``), the recompute to Spark columns (``recount.recompute.columns``). One meaning:

* Null: a comparison or arithmetic with null is null; ``&`` and ``|`` are Kleene's; a filter keeps what is true.
* Numbers: ``+ - *`` of LONG stay LONG, of decimals stay exact (scale: larger of both, for ``*`` their sum); with a
  DOUBLE the result is DOUBLE. ``/`` is always DOUBLE, and null where the divisor is 0.
* ``==`` compares values of one kind (numbers with numbers, text with text); anything else is refused at declaration.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

from recount.core.errors import InvalidDeclaration, require
from recount.core.schema import BOOLEAN, DOUBLE, LONG, STRING, FieldType

Scalar = str | int | float | bool | Decimal
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_NUMERIC = ("long", "double", "decimal")


class Expression:
    """A value computed from one record; build it with operators, ``&``, ``|`` and ``~``."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Call:  # type: ignore[override]
        return _call("==", self, other)

    def __ne__(self, other: object) -> Call:  # type: ignore[override]
        return _call("!=", self, other)

    def __lt__(self, other: object) -> Call:
        return _call("<", self, other)

    def __le__(self, other: object) -> Call:
        return _call("<=", self, other)

    def __gt__(self, other: object) -> Call:
        return _call(">", self, other)

    def __ge__(self, other: object) -> Call:
        return _call(">=", self, other)

    def __add__(self, other: object) -> Call:
        return _call("+", self, other)

    def __sub__(self, other: object) -> Call:
        return _call("-", self, other)

    def __mul__(self, other: object) -> Call:
        return _call("*", self, other)

    def __truediv__(self, other: object) -> Call:
        return _call("/", self, other)

    def __and__(self, other: object) -> Call:
        return _call("and", self, other)

    def __or__(self, other: object) -> Call:
        return _call("or", self, other)

    def __invert__(self) -> Call:
        return _call("not", self)

    def __bool__(self) -> bool:
        raise InvalidDeclaration(
            "expression",
            given=str(self),
            expected="an expression, not a truth value",
            remedy="combine expressions with & | ~ instead of and, or, not",
        )

    def is_null(self) -> Call:
        """True where the value is null; never null itself."""
        return _call("is_null", self)

    def upper(self) -> Call:
        """The text in upper case."""
        return _call("upper", self)

    def lower(self) -> Call:
        """The text in lower case."""
        return _call("lower", self)

    def contains(self, element: object) -> Call:
        """Whether a list holds ``element``; null where either is null."""
        return _call("contains", self, element)


@dataclass(frozen=True, eq=False)
class Column(Expression):
    """The field ``name`` of the record."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Literal(Expression):
    """A constant; None is the null constant."""

    value: Scalar | None

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, eq=False)
class Call(Expression):
    """``operator`` applied to ``arguments``."""

    operator: str
    arguments: tuple[Expression, ...]

    def __str__(self) -> str:
        texts = [str(argument) for argument in self.arguments]
        if self.operator in _COMPARISONS or self.operator in {"+", "-", "*", "/", "and", "or"}:
            return f"({texts[0]} {self.operator} {texts[1]})"
        return f"{self.operator}({', '.join(texts)})"


def col(name: str) -> Column:
    """The field ``name`` of the record at hand."""
    return Column(name)


def lit(value: Scalar | None) -> Literal:
    """A constant."""
    return Literal(value)


def coalesce(*options: object) -> Call:
    """The first of ``options`` that is not null."""
    return _call("coalesce", *options)


def when(condition: Expression, then: object, otherwise: object) -> Call:
    """``then`` where ``condition`` is true, else (also where it is null) ``otherwise``."""
    return _call("when", condition, then, otherwise)


def expression(given: object) -> Expression:
    """``given`` itself when it is an expression, else the constant."""
    if isinstance(given, Expression):
        return given
    require(
        given is None or isinstance(given, str | int | float | bool | Decimal),
        "expression",
        given=given,
        expected="an expression or a text, number, decimal, boolean or None",
        remedy='name a field with col("…")',
    )
    return Literal(given)  # type: ignore[arg-type]


def _call(name: str, *arguments: object) -> Call:
    return Call(name, tuple(expression(argument) for argument in arguments))


def columns_of(tree: Expression) -> frozenset[str]:
    """The names of all fields that ``tree`` reads."""
    match tree:
        case Column(name):
            return frozenset({name})
        case Call(_, arguments):
            return frozenset().union(*(columns_of(argument) for argument in arguments))
    return frozenset()


def type_of(tree: Expression, fields: Mapping[str, FieldType]) -> FieldType | None:
    """The type of ``tree`` over ``fields`` (None: the null constant); ``InvalidDeclaration`` where it has none."""
    match tree:
        case Column(name):
            return _column_type(name, fields)
        case Literal(value):
            return _literal_type(value)
        case Call(name, arguments):
            return _call_type(tree, name, [type_of(argument, fields) for argument in arguments])
    raise AssertionError(tree)


def _column_type(name: str, fields: Mapping[str, FieldType]) -> FieldType:
    close = get_close_matches(name, fields, 1)
    require(
        name in fields,
        "column",
        given=name,
        expected=f"one of {sorted(fields)}",
        remedy=f"did you mean {close[0]!r}?" if close else "declare the field in the topic's schema",
    )
    return fields[name]


def _literal_type(value: Scalar | None) -> FieldType | None:
    match value:
        case None:
            return None
        case bool():
            return BOOLEAN
        case int():
            return LONG
        case float():
            return DOUBLE
        case Decimal():
            scale = max(0, -int(value.as_tuple().exponent))
            return FieldType(kind="decimal", precision=38, scale=scale)
        case _:
            return STRING


def _call_type(tree: Call, name: str, types: list[FieldType | None]) -> FieldType | None:
    known = [given for given in types if given is not None]
    kinds = {given.kind for given in known}
    numeric = kinds <= set(_NUMERIC)
    if name in _COMPARISONS and (numeric or len(kinds) == 1):
        return BOOLEAN
    if name in _ARITHMETIC and numeric:
        return _number_type(name, known)
    if name == "/" and numeric:
        return DOUBLE
    if name in {"and", "or", "not"} and kinds <= {"boolean"}:
        return BOOLEAN
    if name == "is_null":
        return BOOLEAN
    if name in {"upper", "lower"} and kinds <= {"string"}:
        return STRING
    if name == "contains" and types[0] and types[0].kind == "list" and types[0].element in (types[1], None):
        return BOOLEAN
    if name == "coalesce" and len(kinds) <= 1:
        return known[0] if known else None
    if name == "when" and kinds_match(types[1], types[2]) and (types[0] is None or types[0].kind == "boolean"):
        return types[1] or types[2]
    raise InvalidDeclaration(
        "expression",
        given=f"{tree} over ({', '.join(str(given) for given in types)})",
        expected=f"types that {name!r} is defined for",
        remedy="compare and combine values of one kind; see recount.core.expressions",
    )


def kinds_match(one: FieldType | None, other: FieldType | None) -> bool:
    """Whether both types are of one kind, null being of every kind."""
    return one is None or other is None or one.kind == other.kind


def _number_type(name: str, types: list[FieldType]) -> FieldType:
    if any(given.kind == "double" for given in types):
        return DOUBLE
    if all(given.kind == "long" for given in types):
        return LONG
    scales = [given.scale for given in types]
    return FieldType(kind="decimal", precision=38, scale=sum(scales) if name == "*" else max(scales))


def evaluate(tree: Expression, record: Mapping[str, Any]) -> Any:
    """The value of ``tree`` for ``record``: the reference meaning."""
    match tree:
        case Column(name):
            return record[name]
        case Literal(value):
            return value
        case Call("when", (condition, then, otherwise)):
            return evaluate(then if evaluate(condition, record) is True else otherwise, record)
        case Call("coalesce", options):
            return next((value for option in options if (value := evaluate(option, record)) is not None), None)
        case Call(name, arguments):
            return _apply(name, [evaluate(argument, record) for argument in arguments])
    raise AssertionError(tree)


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
    return (_COMPARISONS.get(name) or _ARITHMETIC[name])(left, right)


def _comparable(left: Any, right: Any) -> tuple[Any, Any]:
    """Python refuses to mix Decimal and float: with a DOUBLE on one side, both are DOUBLE."""
    if isinstance(left, float) and isinstance(right, Decimal):
        return left, float(right)
    if isinstance(left, Decimal) and isinstance(right, float):
        return float(left), right
    return left, right
