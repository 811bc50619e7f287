"""Fields of drawn topics that hold the largest and the finest numbers, and what drawn topologies compute of them.

A name with "wide" in it is such a field: ``Flow.of_kind`` leaves them out, for totals of them would be too large.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from sys import float_info

from recount.declare.expressions import Expression, coalesce, col, when
from recount.declare.schema import DOUBLE, LONG, LONG_MAX, LONG_MIN, FieldType, decimal

FIELDS: Mapping[str, FieldType] = {
    "wide_long": LONG,
    "wide_double": DOUBLE,
    "wide_whole": decimal(38, 0),
    "wide_coin": decimal(38, 18),
}
VALUES: Mapping[str, Sequence[int | float | str | None]] = {
    "wide_long": [1, 2, 3, None, 2**31, 2**53 + 1, LONG_MAX // 2 + 1, LONG_MAX, LONG_MIN],
    "wide_double": [0.5, 2.0, None, 2.0**53, 1e154, 9e307, float_info.max, -float_info.max, 5e-324],
    "wide_whole": ["1", "3", None, "100000000000000000000", "170141183460469231731", "9" * 38, f"-{'9' * 38}"],
    "wide_coin": [
        *("1", "100", "0.01", None, "1.000000000000000001", "-0.000000000000000001"),
        *("10000000000", f"{'9' * 20}.{'9' * 18}", f"-{'9' * 20}.{'9' * 18}"),
    ],
}
"""What a record has in them, as JSON: half of it is what every type can hold."""


def is_wide(name: str) -> bool:
    """Whether the field ``name`` holds such a number."""
    return "wide" in name


def wide_expression(dice: random.Random, letter: str) -> Expression:
    """Something computed of the wide fields of a record of the topic whose fields begin with ``letter``."""
    long, double, whole, coin = (col(letter + name) for name in FIELDS)
    number, price, flag = (col(letter + name) for name in ("n", "d", "b"))
    options: Sequence[Expression] = (
        *(long + number, long - long, long * number, long * long),
        *(double + double, double * 10.0, double - long, double / coin, long / double),
        *(coin + coin, coin - price, whole - coin, whole + long, coin + whole),
        *(coin * coin, coin * price, long * coin, whole * number, coin * 2 - coin),
        *(coalesce(coin, whole), when(flag, whole, coin), coalesce(price, whole)),
        *(whole > coin, whole == long, long == double, coin < long, double >= coin, whole - coin > price),
        when(number > 1, long * long, 0),
        coalesce(number, long + long),
        (long + 1 > long) & flag,
    )
    return dice.choice(options)
