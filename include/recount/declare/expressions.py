"""Expressions over a record's fields, written once and compiled three times.

``col("amount") > 100`` is a small tree. The interpreter evaluates it (``evaluation``), the stream compiles it to Polars
(``engine.stage.polars_expressions``), the recompute to Spark columns (``recompute.spark_columns``). One meaning:

* Null: a comparison or arithmetic with null is null; ``&`` and ``|`` are Kleene's; a filter keeps what is true.
* Numbers: ``+ - *`` of LONG stay LONG, of decimals stay exact (scale: larger of both, for ``*`` their sum); with a
  DOUBLE the result is DOUBLE, and two numbers are compared as DOUBLE. ``/`` is always DOUBLE, and null where the
  divisor is 0. A value that its type cannot hold is out of range: the record is set aside (docs/semantics.md).
* ``==`` compares values of one kind (numbers with numbers, text with text, lists with lists of the same items); ``<``
  and the like compare no lists. Anything else is refused at declaration.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import NoReturn

from recount.declare.schema import LONG_MAX, LONG_MIN, MAX_DECIMAL_PRECISION, is_unicode
from recount.declare.unknown_names import declares
from recount.runtime.errors import InvalidDeclaration, require, require_each

Scalar = str | int | float | bool | Decimal
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
ARITHMETIC = ("+", "-", "*")
JSON_SIZE, PLAIN_SIZE = "json size", "plain size"
"""How many bytes a result has: its key, the first argument, and its value, which is made of the others."""
_NULL_OF_NULL = frozenset({*COMPARISONS, *ARITHMETIC, "/", "contains"})
"""Operators whose result is null where one side is."""


@declares
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

    def __radd__(self, other: object) -> Call:
        return _call("+", other, self)

    def __rsub__(self, other: object) -> Call:
        return _call("-", other, self)

    def __rmul__(self, other: object) -> Call:
        return _call("*", other, self)

    def __rtruediv__(self, other: object) -> Call:
        return _call("/", other, self)

    def __and__(self, other: object) -> Call:
        return _call("and", self, other)

    def __or__(self, other: object) -> Call:
        return _call("or", self, other)

    def __rand__(self, other: object) -> Call:
        return _call("and", other, self)

    def __ror__(self, other: object) -> Call:
        return _call("or", other, self)

    def __invert__(self) -> Call:
        return _call("not", self)

    def __bool__(self) -> bool:
        raise InvalidDeclaration.of("truth-value-of-an-expression", given=str(self))

    def __contains__(self, element: object) -> bool:
        raise InvalidDeclaration.of(
            "method-not-called", given=f"{element!r} in {self}", expression=_in_code(self), element=element
        )

    def __getitem__(self, place: object) -> NoReturn:
        raise InvalidDeclaration.of("no-field-of-an-expression", given=f"{self}[{place!r}]")

    def __neg__(self) -> Call:
        return _call("-", 0, self)

    def _refused(self, *_: object) -> NoReturn:
        raise InvalidDeclaration.of("operator-unknown", given=f"an operator of Python on {self}")

    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __pow__ = __rpow__ = __abs__ = __round__ = __xor__ = _refused

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

    def __post_init__(self) -> None:
        require_each("column-without-a-name", [self.name], str)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Literal(Expression):
    """A constant; None is the null constant."""

    value: Scalar | None

    def __post_init__(self) -> None:
        require(_can_be_held(self.value), "constant-of-no-type", given=repr(self.value))

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, eq=False)
class Call(Expression):
    """``operator`` applied to ``arguments``."""

    operator: str
    arguments: tuple[Expression, ...]

    def __str__(self) -> str:
        texts = [str(argument) for argument in self.arguments]
        if self.operator in (*COMPARISONS, *ARITHMETIC, "/", "and", "or"):
            return f"({texts[0]} {self.operator} {texts[1]})"
        return f"{self.operator}({', '.join(texts)})"


@declares
def col(name: str) -> Column:
    """The field ``name`` of the record at hand."""
    return Column(name)


@declares
def lit(value: Scalar | None) -> Literal:
    """A constant."""
    return Literal(value)


@declares
def coalesce(*options: object) -> Call:
    """The first of ``options`` that is not null."""
    require(bool(options), "coalesce-of-nothing", given="nothing")
    return _call("coalesce", *options)


@declares
def when(condition: Expression, then: object, otherwise: object) -> Call:
    """``then`` where ``condition`` is true, else (also where it is null) ``otherwise``."""
    return _call("when", condition, then, otherwise)


def expression(given: object) -> Expression:
    """``given`` itself when it is an expression, else the constant."""
    if isinstance(given, Expression):
        return given
    require(given is None or isinstance(given, str | int | float | bool | Decimal), "not-an-operand", given=given)
    return Literal(given)  # type: ignore[arg-type]


def _can_be_held(value: Scalar | None) -> bool:
    match value:
        case int() | float():
            return LONG_MIN <= value <= LONG_MAX if isinstance(value, int) else isfinite(value)
        case Decimal():
            _, digits, places = value.as_tuple()
            return isinstance(places, int) and max(len(digits), -places) + max(places, 0) <= MAX_DECIMAL_PRECISION
        case str():
            return is_unicode(value)
    return True


def _call(name: str, *arguments: object) -> Call:
    trees = tuple(expression(argument) for argument in arguments)
    if name in _NULL_OF_NULL and any(isinstance(tree, Literal) and tree.value is None for tree in trees):
        other = next((tree for tree in trees if not isinstance(tree, Literal) or tree.value is not None), "…")
        raise InvalidDeclaration.of(
            "comparison-with-none",
            given=str(Call(name, trees)),
            remedy=f"write {_in_code(other)}.is_null(), or ~{_in_code(other)}.is_null() for the others"
            if name in COMPARISONS
            else "leave it out, or write lit(None)",
        )
    return Call(name, trees)


def _in_code(tree: object) -> str:
    return f'col("{tree.name}")' if isinstance(tree, Column) else f"({tree})"
