"""Columns of frames: expressions of DuckDB's SQL, and the windows over which they are taken.

Null sorts first and is the least, as it does in Spark. Inside a struct or a list DuckDB takes null for the greatest, so
what is compared as a whole must have none there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

Literal = str | int | float | bool | Decimal | None
_NUMBERS = count()
REFUSED = "recount refuses: "
"""Begins the text of an error that a query makes on purpose."""


@dataclass(frozen=True)
class PythonFunction:
    """A function of Python over the values of one row, whose result has the type ``kind``."""

    name: str
    function: Callable[..., Any]
    kind: T.DataType

    @classmethod
    def of(cls, function: Callable[..., Any], kind: T.DataType) -> PythonFunction:
        """``function`` under a name of its own."""
        return cls(f"recount_python_{next(_NUMBERS)}", function, kind)


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """An expression of SQL, the ``name`` of the column that it makes, and the functions of Python in it."""

    sql: str
    name: str | None = None
    functions: frozenset[PythonFunction] = frozenset()

    @classmethod
    def made(cls, sql: str, *parts: Column) -> Column:
        """``sql`` with the expressions ``parts`` in place of each ``{}``."""
        functions = frozenset[PythonFunction]().union(*(one.functions for one in parts))
        return Column(sql=sql.format(*(one.sql for one in parts)), functions=functions)

    def alias(self, name: str) -> Column:
        """The same under another name."""
        return replace(self, name=name)

    def cast(self, kind: T.DataType | str) -> Column:
        """The value as ``kind``; an error where it has no room there. The name stays."""
        return replace(self, sql=f"CAST({self.sql} AS {duck_type(kind)})")

    def try_cast(self, kind: T.DataType | str) -> Column:
        """The value as ``kind``; null where it has no room there."""
        return replace(self, sql=f"TRY_CAST({self.sql} AS {duck_type(kind)})")

    def over(self, window: Window) -> Column:
        """An aggregate, or a function of windows, over ``window``."""
        return Column.made("{} OVER ({})", self, Column(sql=window.sql, functions=window.functions))

    def is_null(self) -> Column:
        """Whether there is no value."""
        return Column.made("({} IS NULL)", self)

    def is_not_null(self) -> Column:
        """Whether there is a value."""
        return Column.made("({} IS NOT NULL)", self)

    def is_in(self, values: Collection[str | int]) -> Column:
        """Whether the value is one of ``values``."""
        if not values:
            return Column.made("({} IS NULL AND NULL)", self)
        return Column.made(f"({{}} IN ({', '.join(['{}'] * len(values))}))", self, *(literal(one) for one in values))

    def equals_or_both_null(self, other: Constant) -> Column:
        """Whether both are equal, or neither has a value; never null."""
        return Column.made("({} IS NOT DISTINCT FROM {})", self, value_of(other))

    def part(self, name: str) -> Column:
        """The part ``name`` of a struct."""
        return Column.made("struct_extract({}, {})", self, literal(name))

    def at(self, index: int) -> Column:
        """The element at ``index``, from 0 on, of a list; null where it has none."""
        return Column.made(f"list_extract({{}}, {index + 1})", self)

    def value_at(self, key: Column) -> Column:
        """The value of ``key`` in a map; null where there is none."""
        return Column.made("map_extract_value({}, {})", self, key)

    def descending(self) -> Sorted:
        """The column, by which rows are sorted in the other direction."""
        return Sorted(column=self, order="DESC NULLS LAST")

    def __add__(self, other: Constant) -> Column:
        return Column.made("({} + {})", self, value_of(other))

    def __sub__(self, other: Constant) -> Column:
        return Column.made("({} - {})", self, value_of(other))

    def __rsub__(self, other: Constant) -> Column:
        return Column.made("({} - {})", value_of(other), self)

    def __mul__(self, other: Constant) -> Column:
        return Column.made("({} * {})", self, value_of(other))

    def __truediv__(self, other: Constant) -> Column:
        return Column.made("({} / {})", self, value_of(other))

    def __mod__(self, other: Constant) -> Column:
        return Column.made("({} % {})", self, value_of(other))

    def __and__(self, other: Constant) -> Column:
        return Column.made("({} AND {})", self, value_of(other))

    def __or__(self, other: Constant) -> Column:
        return Column.made("({} OR {})", self, value_of(other))

    def __invert__(self) -> Column:
        return Column.made("(NOT {})", self)

    def __eq__(self, other: object) -> Column:  # type: ignore[override]
        return Column.made("({} = {})", self, value_of(other))  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Column:  # type: ignore[override]
        return Column.made("({} <> {})", self, value_of(other))  # type: ignore[arg-type]

    def __lt__(self, other: Constant) -> Column:
        return Column.made("({} < {})", self, value_of(other))

    def __le__(self, other: Constant) -> Column:
        return Column.made("({} <= {})", self, value_of(other))

    def __gt__(self, other: Constant) -> Column:
        return Column.made("({} > {})", self, value_of(other))

    def __ge__(self, other: Constant) -> Column:
        return Column.made("({} >= {})", self, value_of(other))

    def __bool__(self) -> bool:
        raise TypeError("a column has no value of its own")


Given = Column | Literal
"""A column, its name, or a constant in place of one; a text is always the name of a column."""
Constant = Column | Literal
"""A column, or a constant; a text is one."""


@dataclass(frozen=True, kw_only=True)
class Sorted:
    """A column by which rows are sorted, and how."""

    column: Column
    order: str = "ASC NULLS FIRST"


@dataclass(frozen=True, kw_only=True)
class Window:
    """The rows with equal ``keys``, sorted; with ``rows`` those that lie so to each (``ROWS_UP_TO``, ``ROWS_BEFORE``).

    Sorted and without ``rows`` it ends with the last row that is equal by the order.
    """

    keys: Sequence[Column] = ()
    order: Sequence[Sorted] = ()
    rows: str = ""

    @classmethod
    def of(cls, *keys: Given) -> Window:
        """The rows with equal ``keys``."""
        return cls(keys=[column_of(key) for key in keys])

    def sorted(self, *order: Given | Sorted) -> Window:
        """The same, sorted."""
        by = [one if isinstance(one, Sorted) else Sorted(column=column_of(one)) for one in order]
        return replace(self, order=by)

    def ending(self, rows: str) -> Window:
        """The same, of which ``rows`` lie so."""
        return replace(self, rows=rows)

    @property
    def sql(self) -> str:
        """The window as SQL writes it."""
        keys = ", ".join(key.sql for key in self.keys)
        order = ", ".join(f"{one.column.sql} {one.order}" for one in self.order)
        parts = [f"PARTITION BY {keys}" if keys else "", f"ORDER BY {order}" if order else "", self.rows]
        return " ".join(part for part in parts if part)

    @property
    def functions(self) -> frozenset[PythonFunction]:
        """The functions of Python in it."""
        columns = [*self.keys, *(one.column for one in self.order)]
        return frozenset[PythonFunction]().union(*(one.functions for one in columns))


ROWS_UP_TO = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
ROWS_BEFORE = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"


def column_of(given: Given) -> Column:
    """``given`` as a column."""
    if isinstance(given, Column):
        return given
    return named(given) if isinstance(given, str) else literal(given)


def value_of(given: Constant) -> Column:
    """``given`` as a column."""
    return given if isinstance(given, Column) else literal(given)


def named(name: str) -> Column:
    """The column ``name``, whatever characters it has."""
    return Column(sql=quoted(name), name=name)


def literal(value: Literal) -> Column:
    """A constant. Whole numbers are LONG; a null has no type of its own."""
    match value:
        case None:
            return Column(sql="NULL")
        case bool():
            return Column(sql="TRUE" if value else "FALSE")
        case int():
            return Column(sql=f"CAST({value} AS {'BIGINT' if -(2**63) <= value < 2**63 else 'HUGEINT'})")
        case float():
            return Column(sql=f"CAST('{value!r}' AS DOUBLE)")
        case Decimal():
            return Column(sql=f"CAST('{value:f}' AS {_type_of(value)})")
    return Column(sql=_text(value))


def quoted(name: str) -> str:
    """``name`` as SQL writes a name."""
    return '"' + name.replace('"', '""') + '"'


def duck_type(kind: T.DataType | str) -> str:
    """The type as DuckDB writes it, which knows the names ``string``, ``long``, ``int``, ``double`` and ``boolean``."""
    match kind:
        case str():
            return kind
        case T.DecimalType():
            return f"DECIMAL({kind.precision}, {kind.scale})"
        case T.ArrayType():
            return f"{duck_type(kind.elementType)}[]"
        case T.MapType():
            return f"MAP({duck_type(kind.keyType)}, {duck_type(kind.valueType)})"
        case T.StructType():
            return f"STRUCT({', '.join(f'{quoted(one.name)} {duck_type(one.dataType)}' for one in kind)})"
    return {"bigint": "BIGINT", "int": "INTEGER", "string": "VARCHAR", "binary": "BLOB", "void": "INTEGER"}.get(
        kind.simpleString(), kind.simpleString().upper()
    )


def kind_of(kind: pa.DataType) -> T.DataType:
    """The type of the values of an Arrow type, as schemas name it."""
    if pa.types.is_list(kind):
        return T.ArrayType(kind_of(kind.value_type))
    if pa.types.is_map(kind):
        return T.MapType(kind_of(kind.key_type), kind_of(kind.item_type))
    if pa.types.is_struct(kind):
        parts = (kind.field(at) for at in range(kind.num_fields))
        return T.StructType([T.StructField(part.name, kind_of(part.type)) for part in parts])
    if pa.types.is_decimal(kind):
        return T.DecimalType(kind.precision, kind.scale)
    return _KINDS[kind]()


_KINDS: dict[pa.DataType, type[T.DataType]] = {
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), T.StringType),
    pa.int64(): T.LongType,
    pa.int32(): T.IntegerType,
    pa.float64(): T.DoubleType,
    pa.bool_(): T.BooleanType,
    pa.binary(): T.BinaryType,
    pa.null(): T.NullType,
}


def _type_of(value: Decimal) -> str:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "it is finite"
    scale = max(0, -exponent)
    return f"DECIMAL({max(len(digits) + max(0, exponent), scale, 1)}, {scale})"


def _text(value: str) -> str:
    text = "'" + value.replace("'", "''") + "'"
    return text if "\0" not in value else "(" + text.replace("\0", "' || chr(0) || '") + ")"
