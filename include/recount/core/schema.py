"""What a record's JSON value may hold, and the one rule of what is a bad record.

Rules, the same in the interpreter, the stream and the recompute:

* A value is one JSON object in UTF-8. Fields that are not declared are ignored; of a field given twice the last counts.
* ``STRING`` takes a JSON string; ``LONG`` an integer literal within 64 bits (``1.0`` is none); ``DOUBLE`` any finite
  number; ``BOOLEAN`` true or false. Nothing is coerced: ``"12"`` is no number and ``12`` is no string.
* ``decimal(precision, scale)`` takes a JSON number that has at most that many digits and decimal places. JSON numbers
  are read as IEEE 754 doubles (RFC 8259, section 6), and a decimal of up to 15 digits survives that exactly
  (``DBL_DIG``), so the decimal is the number as written. ``12.345`` is no ``decimal(15, 2)``.
* A missing field and an explicit null are the same null; a *required* field must be neither.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from recount.core.errors import RecountError, require

Kind = Literal["string", "long", "double", "decimal", "boolean", "list"]

MAX_DECIMAL_PRECISION = 15
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class FieldType:
    """A type of a field; use the constants and factories below."""

    kind: Kind
    precision: int = 0
    scale: int = 0
    element: FieldType | None = None

    def __str__(self) -> str:
        if self.kind == "decimal":
            return f"decimal({self.precision}, {self.scale})"
        return f"list of {self.element}" if self.element else self.kind


STRING = FieldType(kind="string")
LONG = FieldType(kind="long")
DOUBLE = FieldType(kind="double")
BOOLEAN = FieldType(kind="boolean")


def decimal(precision: int, scale: int) -> FieldType:
    """An exact decimal of at most ``precision`` digits, ``scale`` of them behind the point; precision 1 to 15."""
    require(
        0 <= scale <= precision <= MAX_DECIMAL_PRECISION and precision > 0,
        "decimal",
        given=(precision, scale),
        expected=f"0 <= scale <= precision <= {MAX_DECIMAL_PRECISION}, precision > 0",
        remedy="declare larger amounts in a smaller unit (LONG cents)",
    )
    return FieldType(kind="decimal", precision=precision, scale=scale)


def list_of(element: FieldType) -> FieldType:
    """A JSON array whose elements all have type ``element`` and are not null."""
    require(
        element.kind != "list", "list_of", given=element, expected="a scalar type", remedy="flatten the nested list"
    )
    return FieldType(kind="list", element=element)


class BadRecord(RecountError):
    """A record that cannot be processed: it goes to the dead-letter topic with ``reason`` and ``detail``."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"bad record ({reason})", given=detail)


@dataclass(frozen=True, kw_only=True)
class RecordSchema:
    """The declared fields of a topic's value, in order; ``required`` names those that must not be null."""

    fields: Mapping[str, FieldType]
    required: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        require(bool(self.fields), "fields", given=self.fields, expected="at least one field", remedy="declare one")
        unknown = sorted(self.required - set(self.fields))
        require(
            not unknown,
            "required",
            given=unknown,
            expected=f"names among {sorted(self.fields)}",
            remedy="declare the field, or take its name out of required",
        )

    @classmethod
    def of(cls, *, required: tuple[str, ...] = (), **fields: FieldType) -> RecordSchema:
        """A schema written as keywords: ``RecordSchema.of(order_id=STRING, amount=decimal(15, 2))``."""
        return cls(fields=dict(fields), required=frozenset(required))

    def decode(self, value: bytes) -> dict[str, Any]:
        """The declared fields of ``value`` (all of them, null where missing); raises ``BadRecord``."""
        try:
            document = json.loads(value.decode("utf-8"), parse_int=_integer, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise BadRecord("undecodable", str(error)) from error
        if not isinstance(document, dict):
            raise BadRecord("schema", f"expected a JSON object, got {type(document).__name__}")
        return dict(self._fields_of(document))

    def _fields_of(self, document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, field_type in self.fields.items():
            given = document.get(name)
            if given is None:
                if name in self.required:
                    raise BadRecord("schema", f"required field {name} is missing or null")
                yield name, None
            else:
                yield name, _typed(name, field_type, given)


def _integer(digits: str) -> int | float:
    """An integer literal of any length; one beyond every type we declare is infinite (Python refuses 4,300 digits)."""
    return int(digits) if len(digits) <= 400 else math.copysign(math.inf, int(digits[:2]))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _typed(name: str, field_type: FieldType, given: Any) -> Any:
    match field_type.kind, given:
        case "string", str() if _is_unicode(given):
            return given
        case "boolean", bool():
            return given
        case "long", int() if not isinstance(given, bool) and LONG_MIN <= given <= LONG_MAX:
            return given
        case (("double" | "decimal"), (int() | float())) if not isinstance(given, bool):
            number = _finite(given)
            if number is not None:
                exact = number if field_type.kind == "double" else exact_decimal(number, field_type)
                if exact is not None:
                    return exact
        case "list", list() if field_type.element is not None:
            return [_typed(f"{name}[{i}]", field_type.element, item) for i, item in enumerate(given)]
    raise BadRecord("schema", f"field {name}: expected {field_type}, got {json.dumps(given)[:80]}")


def _is_unicode(text: str) -> bool:
    """False for a lone surrogate, which JSON can escape but UTF-8 cannot carry."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _finite(given: int | float) -> float | None:
    try:
        number = float(given)
    except OverflowError:
        return None
    return number if abs(number) != float("inf") else None


def exact_decimal(number: float, field_type: FieldType) -> Decimal | None:
    """The ``decimal(precision, scale)`` nearest to ``number``, or None when it is not the same number.

    Source: a decimal of at most 15 digits, read as a double and rounded back, is itself (DBL_DIG, C17 5.2.4.2.2);
    ``unscaled / 10**scale`` is one correctly rounded division of exact operands, so equality decides.
    """
    factor = 10.0**field_type.scale
    scaled = number * factor
    if abs(scaled) >= 10.0**field_type.precision:
        return None
    unscaled = round(scaled)
    if unscaled / factor != number:
        return None
    return Decimal(unscaled).scaleb(-field_type.scale)
