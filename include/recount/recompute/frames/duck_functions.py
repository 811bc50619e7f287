"""Functions over columns: aggregates, windows, lists, structs, conditions, exact arithmetic, and functions of Python.

A text in place of a column is the name of a column. An aggregate passes nulls over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from pyspark.sql import types as T

from recount.recompute.frames.duck_columns import (
    REFUSED,
    Column,
    Constant,
    Given,
    PythonFunction,
    column_of,
    literal,
    named,
    quoted,
    value_of,
)

col, lit = named, literal
_VARIABLES = count()
Step = Callable[[Column], Column]


@dataclass(frozen=True, kw_only=True, eq=False)
class Case(Column):
    """A value by conditions of which the first that holds counts; null where none does."""

    def when(self, condition: Given, value: Constant) -> Case:
        """One more condition, asked after those before."""
        return _case("{} WHEN {} THEN {} END", self._begun, column_of(condition), value_of(value))

    def otherwise(self, value: Constant) -> Column:
        """``value`` where no condition holds."""
        return Column.made("({} ELSE {} END)", self._begun, value_of(value))

    @property
    def _begun(self) -> Column:
        return Column(sql=self.sql.removesuffix(" END"), functions=self.functions)


def when(condition: Given, value: Constant) -> Case:
    """``value`` where ``condition`` holds, else null. A text is a constant."""
    return _case("CASE WHEN {} THEN {} END", column_of(condition), value_of(value))


def _case(sql: str, *parts: Column) -> Case:
    made = Column.made(sql, *parts)
    return Case(sql=made.sql, functions=made.functions)


def coalesce(*options: Given) -> Column:
    """The first of ``options`` that is not null."""
    return _call("COALESCE", *options)


def isnull(value: Given) -> Column:
    """Whether there is no value."""
    return column_of(value).is_null()


def isnotnull(value: Given) -> Column:
    """Whether there is a value."""
    return column_of(value).is_not_null()


def greatest(*options: Given) -> Column:
    """The greatest of ``options``; nulls are passed over."""
    return _call("greatest", *options)


def least(*options: Given) -> Column:
    """The least of ``options``; nulls are passed over."""
    return _call("least", *options)


def error(text: Given) -> Column:
    """No value: an error, ``NotComputable`` with ``text``."""
    return Column.made("error({} || {})", literal(REFUSED), column_of(text))


def magnitude(value: Given) -> Column:
    """The absolute value."""
    return _call("abs", value)


def attempted(value: Column) -> Column:
    """``value``; null where to compute it is an error."""
    return _call("TRY", value)


def exact_double(value: Column) -> Column:
    """A decimal as the nearest DOUBLE: DuckDB's own cast divides, and rounds twice."""
    return Column.made("CAST(CAST({} AS VARCHAR) AS DOUBLE)", value)


def smallest_units(value: Given) -> Column:
    """A decimal as a whole number of its smallest unit, of 128 bits."""
    return Column.made("CAST(replace(CAST({} AS VARCHAR), '.', '') AS HUGEINT)", column_of(value))


def whole_quotient(value: Given, by: Given) -> Column:
    """The quotient of whole numbers, cut and not rounded."""
    return Column.made("({} // {})", column_of(value), column_of(by))


def remainder(value: Given, by: Given) -> Column:
    """``value`` modulo ``by``, which is positive: from 0 on, for negative values too."""
    divisor = column_of(by)
    return Column.made("((({} % {}) + {}) % {})", column_of(value), divisor, divisor, divisor)


def count_of(value: Given = None) -> Column:
    """How many values there are; without ``value``, how many rows."""
    return Column(sql="count(*)") if value is None else _call("count", value)


def total(value: Given) -> Column:
    """The sum: of LONG one of 128 bits, of a decimal one of 38 digits; an error beyond these."""
    return _call("sum", value)


def largest(value: Given) -> Column:
    """The greatest value."""
    return _call("max", value)


def smallest(value: Given) -> Column:
    """The least value."""
    return _call("min", value)


def any_holds(condition: Given) -> Column:
    """Whether ``condition`` holds for a row."""
    return _call("bool_or", condition)


def all_hold(condition: Given) -> Column:
    """Whether ``condition`` holds for every row."""
    return _call("bool_and", condition)


def count_if(condition: Given) -> Column:
    """For how many rows ``condition`` holds."""
    return _call("count_if", condition)


def element_at(elements: Given, place: Column) -> Column:
    """The element at ``place``, counted from 1."""
    return _call("list_extract", elements, place)


def first_of(value: Given) -> Column:
    """The value of some row."""
    return _call("first", value)


def of_largest(value: Given, by: Given) -> Column:
    """The ``value`` of the row whose ``by`` is the greatest; rows in which one of both is null are passed over."""
    return _call("arg_max", value, by)


def of_smallest(value: Given, by: Given) -> Column:
    """The ``value`` of the row whose ``by`` is the least; rows in which one of both is null are passed over."""
    return _call("arg_min", value, by)


def all_values(value: Column) -> Column:
    """A list of the values, in no order; null without any."""
    return Column.made("list({}) FILTER (WHERE {} IS NOT NULL)", value, value)


def sorted_values(value: Column) -> Column:
    """A list of the values in order; empty without any."""
    return Column.made("COALESCE(list_sort(list({}) FILTER (WHERE {} IS NOT NULL)), [])", value, value)


def distinct_values(value: Column) -> Column:
    """A list of the different values, in no order; null without any."""
    return Column.made("list(DISTINCT {}) FILTER (WHERE {} IS NOT NULL)", value, value)


def row_number() -> Column:
    """The number of a row in its window, from 1 on."""
    return Column(sql="row_number()")


def one_before(value: Given) -> Column:
    """The value of the row before, in its window."""
    return _call("lag", value)


def last_value(value: Given) -> Column:
    """The last value in the window that is not null."""
    return Column.made("last_value({} IGNORE NULLS)", column_of(value))


def struct(*parts: Column | str) -> Column:
    """The columns as one, under their names."""
    columns = [column_of(part) for part in parts]
    assert all(one.name is not None for one in columns), "a part of a struct has a name"
    fields = ", ".join(f"{_braced(quoted(str(one.name)))} := {{}}" for one in columns)
    return Column.made(f"struct_pack({fields})", *columns)


def array(*elements: Constant) -> Column:
    """A list of the ``elements``."""
    return Column.made(f"[{', '.join(['{}'] * len(elements))}]", *map(value_of, elements))


def map_of(values: Mapping[str, int]) -> Column:
    """A constant map from texts to LONG."""
    keys, found = array(*values), array(*values.values())
    return Column.made("map(CAST({} AS VARCHAR[]), CAST({} AS BIGINT[]))", keys, found)


def concat(*parts: Constant) -> Column:
    """The texts of ``parts``, one after the other; null where one is."""
    return Column.made(f"({' || '.join(['CAST({} AS VARCHAR)'] * len(parts))})", *map(value_of, parts))


def concat_known(*parts: Constant) -> Column:
    """The same without those that are null."""
    return Column.made(f"concat({', '.join(['{}'] * len(parts))})", *map(value_of, parts))


def list_of_all(*lists: Given) -> Column:
    """The elements of ``lists``, one list after the other."""
    return Column.made(f"({' || '.join(['{}'] * len(lists))})", *map(column_of, lists))


def flattened(lists: Given) -> Column:
    """The elements of a list of lists, one list after the other."""
    return _call("flatten", lists)


def sorted_list(elements: Given, *, falling: bool = False) -> Column:
    """The elements in order, or in the order from the greatest to the least."""
    return _call("list_reverse_sort" if falling else "list_sort", elements)


def size(elements: Given) -> Column:
    """How many elements a list has; 0 where there is none."""
    return Column.made("COALESCE(len({}), 0)", column_of(elements))


def contains(elements: Given, value: Constant) -> Column:
    """Whether ``value`` is among the ``elements``; null where one of both is null."""
    found = value_of(value)
    return Column.made("CASE WHEN {} IS NOT NULL THEN list_contains({}, {}) END", found, column_of(elements), found)


def distinct(elements: Given) -> Column:
    """The different elements of a list."""
    return _call("list_distinct", elements)


def united(one: Given, other: Given) -> Column:
    """The different elements of two lists; null where one of both is."""
    return Column.made("list_distinct({} || {})", column_of(one), column_of(other))


def joined_texts(elements: Given, between: str) -> Column:
    """The texts of a list as one."""
    return _call("array_to_string", elements, literal(between))


def largest_in(elements: Given) -> Column:
    """The greatest element of a list."""
    return _call("list_max", elements)


def filtered(elements: Column, holds: Step) -> Column:
    """The elements for which a condition holds."""
    return _stepped("list_filter", elements, holds)


def mapped(elements: Column, step: Step) -> Column:
    """A list of what ``step`` makes of each element."""
    return _stepped("list_transform", elements, step)


def some_hold(elements: Column, holds: Step) -> Column:
    """Whether a condition holds for an element."""
    return Column.made("(len({}) > 0)", filtered(elements, holds))


def each_holds(elements: Column, holds: Step) -> Column:
    """Whether a condition holds for each element; it does for none."""
    return Column.made("(len({}) = 0)", filtered(elements, lambda one: ~coalesce(holds(one), literal(False))))


def part_of_list(elements: Column, first: Given, last: Given) -> Column:
    """The elements from place ``first`` to place ``last``, counted from 1."""
    return _call("list_slice", elements, first, last)


def parts_of_text(text: Given, between: str) -> Column:
    """The parts of a text that ``between`` separates."""
    return _call("string_split", text, literal(between))


def begins_with(text: Given, start: str) -> Column:
    """Whether a text begins with ``start``."""
    return _call("starts_with", text, literal(start))


def as_json(value: Column) -> Column:
    """The value as JSON: structs with all their fields, decimals and doubles as numbers."""
    return Column.made("CAST(to_json({}) AS VARCHAR)", value)


def each_of(elements: Column) -> Column:
    """A row for each element."""
    return _call("unnest", elements)


def sequence(first: Given, last: Given, step: Given = 1) -> Column:
    """The numbers from ``first`` to ``last``, both included; none where ``last`` is less."""
    return _call("generate_series", first, last, step)


def by_python(function: Callable[..., Any], kind: T.DataType) -> Callable[..., Column]:
    """``function`` over columns; its result is of ``kind``. Structs come as dictionaries."""
    known = PythonFunction.of(function, kind)

    def called(*columns: Given) -> Column:
        made = _call(known.name, *columns)
        return Column(sql=made.sql, functions=made.functions | {known})

    return called


def _call(name: str, *parts: Given) -> Column:
    return Column.made(f"{name}({', '.join(['{}'] * len(parts))})", *map(column_of, parts))


def _stepped(name: str, elements: Column, step: Step) -> Column:
    variable = Column(sql=f"each_{next(_VARIABLES)}")
    return Column.made(f"{name}({{}}, lambda {variable.sql}: {{}})", elements, step(variable))


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
