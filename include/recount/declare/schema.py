"""Values that a record may hold as JSON, and the one rule of what is a bad record.

Rules, the same in the interpreter, the stream and the recompute:

* A value is one JSON object in UTF-8. Fields that are not declared are ignored; of a field given twice the last counts.
* ``STRING`` takes a JSON string; ``LONG`` an integer literal within 64 bits (``1.0`` is none); ``DOUBLE`` any finite
  number; ``BOOLEAN`` true or false. Nothing is coerced: ``"12"`` is no number and ``12`` is no string.
* ``decimal(precision, scale)`` takes a number that has at most that many digits and decimal places, as it is written:
  ``12.345`` is no ``decimal(15, 2)``; zeros behind do not count. One of up to 15 digits may also be written as
  the double that stands for it: ``0.29999999999999999`` is 0.3. It may stand in a JSON string, the usual way to send
  money, if the string holds a number as JSON writes it and nothing else: ``"990.56"``, not ``" 1"``, ``"1_000"``,
  ``".5"`` or ``"NaN"``. A LONG may not: declare ``decimal(19, 0)`` for whole numbers that are sent as strings.
* Moments, dates, bytes, headers and values within others are described in ``readings``.
* A missing field and an explicit null are the same null; a *required* field must be neither.
* No more than 500 objects and arrays lie in one another, declared or not (``declare.values``).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal, InvalidOperation, localcontext
from typing import Any, Literal

from recount.declare.columns import require_free
from recount.declare.unknown_names import declares
from recount.declare.values import MOST_NESTED, WHOLE, Form, Reading, is_too_deep, of_header, of_text
from recount.runtime.errors import RecountError, require, require_each

Headers = Iterable[tuple[str, bytes | None]]
"""Those of a record, in their order."""
Kind = Literal["string", "long", "double", "decimal", "boolean", "list"]

MAX_DECIMAL_PRECISION, DOUBLE_DIGITS = 38, 15
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
"""A number as JSON writes it."""
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
TIMESTAMP = Reading(kind=LONG, form="timestamp")
"""A moment: a LONG of milliseconds since the epoch in rows."""
DATE = Reading(kind=STRING, form="date")
"""A day of the calendar: a STRING like ``2026-01-31`` in rows."""
BYTES = Reading(kind=STRING, form="bytes")
"""Any bytes: a STRING in base64 in rows."""


@declares
def decimal(precision: int, scale: int) -> FieldType:
    """An exact decimal of at most ``precision`` digits, ``scale`` of them behind the point; precision 1 to 38."""
    require(
        type(precision) is type(scale) is int and 0 <= scale <= precision <= MAX_DECIMAL_PRECISION and precision > 0,
        "decimal-out-of-range",
        given=(precision, scale),
        most=MAX_DECIMAL_PRECISION,
    )
    return FieldType(kind="decimal", precision=precision, scale=scale)


@declares
def list_of(element: FieldType) -> FieldType:
    """A JSON array whose elements all have type ``element`` and are not null."""
    expected = "STRING, LONG, DOUBLE, BOOLEAN or decimal(15, 2)"
    given = str(element) if isinstance(element, FieldType | Reading) else f"{element!r}, a {type(element).__name__}"
    require(
        isinstance(element, FieldType) and element.kind != "list",
        "list-of-no-such-type",
        given=given,
        expected=expected,
    )
    return FieldType(kind="list", element=element)


@declares
def nested(*path: str, kind: FieldType | Reading) -> Reading:
    """The value at ``path``, of records or maps within the value: ``nested("address", "city", kind=STRING)``."""
    require(bool(path) and all(isinstance(name, str) for name in path), "nested-without-a-path", given=path)
    require_each("nested-without-a-type", [kind], FieldType | Reading)
    require(isinstance(kind, FieldType) or kind.is_of_value, "nested-in-something-else", given=str(kind))
    return Reading(kind=kind, path=path) if isinstance(kind, FieldType) else replace(kind, path=(*path, *kind.path))


@declares
def header(name: str, *, kind: FieldType | Reading = STRING) -> Reading:
    """The last header ``name`` of the record: ``trace=header("trace-id")``. ``kind``: TIMESTAMP, DATE or BYTES too."""
    require(isinstance(name, str) and name != "", "header-without-a-name", given=name)
    require(kind in (STRING, TIMESTAMP, DATE, BYTES), "header-of-another-type", given=str(kind), name=name)
    return Reading(kind=kind, header=name) if isinstance(kind, FieldType) else replace(kind, header=name)


@declares
def in_key(*path: str, kind: FieldType | Reading = STRING) -> Reading:
    """The value at ``path`` in the key: ``region=in_key("region")``; without a path a key that is no record.

    ``kind``: STRING, LONG, TIMESTAMP, DATE or BYTES.
    """
    require(all(isinstance(name, str) and name != "" for name in path), "in-key-without-a-path", given=path)
    require(kind in (STRING, LONG, TIMESTAMP, DATE, BYTES), "in-key-of-another-type", given=str(kind))
    made = Reading(kind=kind) if isinstance(kind, FieldType) else kind
    return replace(made, path=path or WHOLE, is_of_key=True)


class BadRecord(RecountError):
    """A record that cannot be processed: it goes to the dead-letter topic with ``reason`` and ``detail``.

    Half a character, which JSON can escape but UTF-8 cannot carry, stands in the detail as it is escaped.
    """

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        self.detail = detail.encode(errors="backslashreplace").decode()
        super().__init__(f"bad record ({reason})", given=self.detail)


@dataclass(frozen=True, kw_only=True)
class RecordSchema:
    """The declared fields of a topic's value, in order; ``required`` names those that must not be null.

    ``fields`` may be declared as readings (``TIMESTAMP``, ``nested``): then it has the types that rows have, and
    ``readings`` says how the others are read.
    """

    fields: Mapping[str, FieldType]
    required: frozenset[str] = frozenset()
    readings: Mapping[str, Reading] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_each("required-not-a-tuple", [self.required], frozenset | set | tuple | list)
        object.__setattr__(self, "required", frozenset(self.required))
        require_each("schema-of-no-mapping", [self.fields], Mapping)
        require(bool(self.fields), "schema-without-fields", given=self.fields)
        declared: Mapping[str, FieldType | Reading] = self.fields
        readings = {**self.readings, **{name: kind for name, kind in declared.items() if isinstance(kind, Reading)}}
        object.__setattr__(self, "readings", {name: one for name, one in readings.items() if name in declared})
        made = {name: kind.kind if isinstance(kind, Reading) else kind for name, kind in declared.items()}
        object.__setattr__(self, "fields", made)
        require_types("fields", self.fields)
        require_free("a topic's fields", self.fields)
        require(any(self._is_of_value(name) for name in made), "schema-without-a-value", given=", ".join(made))
        unknown = sorted(self.required - set(self.fields))
        require(not unknown, "required-unknown", given=unknown, fields=sorted(self.fields))

    @classmethod
    def of(cls, /, *, required: tuple[str, ...] = (), **fields: FieldType | Reading) -> RecordSchema:
        """A schema written as keywords: ``RecordSchema.of(order_id=STRING, amount=decimal(15, 2))``."""
        return cls(fields=dict(fields), required=required)  # type: ignore[arg-type] # any names will do

    @property
    def header_fields(self) -> Mapping[str, str]:
        return {name: one.header for name, one in self.readings.items() if one.header is not None}

    @property
    def key_fields(self) -> tuple[str, ...]:
        """The fields that lie in the key, in order."""
        return tuple(name for name in self.fields if name in self.readings and self.readings[name].is_of_key)

    @property
    def reads_whole_key(self) -> bool:
        """Whether the key is no record: one field is all of it."""
        return any(self.readings[name].path == WHOLE for name in self.key_fields)

    @property
    def of_value(self) -> RecordSchema:
        kept = {name: kind for name, kind in self.fields.items() if self._is_of_value(name)}
        return (
            self if len(kept) == len(self.fields) else replace(self, fields=kept, required=self.required & kept.keys())
        )

    @property
    def of_key(self) -> RecordSchema:
        """The fields of the key alone, as those of a value; there must be some."""
        fields: dict[str, Any] = {name: replace(self.readings[name], is_of_key=False) for name in self.key_fields}
        return RecordSchema(fields=fields, required=self.required & fields.keys())

    def _is_of_value(self, name: str) -> bool:
        return name not in self.readings or self.readings[name].is_of_value

    def path_of(self, name: str) -> tuple[str, ...]:
        return (name,) if name not in self.readings else self.readings[name].path or (name,)

    def form_of(self, name: str) -> Form | None:
        """The form of the field ``name``, where rows have it in another."""
        return self.readings[name].form if name in self.readings else None

    def told(self, name: str) -> str:
        """How the field ``name`` is read, for people and fingerprints."""
        return str(self.readings.get(name, self.fields[name]))

    def decode(self, value: bytes, headers: Headers = (), key: bytes | None = None) -> dict[str, Any]:
        """The declared fields of ``value``, ``headers`` and ``key`` (all, null where missing); raises ``BadRecord``."""
        if is_too_deep(value):
            raise BadRecord("undecodable", f"nested deeper than {MOST_NESTED}")
        try:
            document = json.loads(
                value.decode("utf-8"), parse_int=_integer, parse_float=_Real, parse_constant=_refuse_constant
            )
        except (ValueError, RecursionError) as error:
            raise BadRecord("undecodable", str(error)) from error
        if not isinstance(document, dict):
            raise BadRecord("schema", f"expected a JSON object, got {type(document).__name__}")
        found = dict(self._fields_of(document))
        if len(found) == len(self.fields):
            return found
        found |= self.of_headers(headers) | self.of_raw_key(key)
        return {name: found[name] for name in self.fields}

    def of_raw_key(self, key: bytes | None) -> dict[str, Any]:
        """The fields that lie in ``key``, a JSON object; raises ``BadRecord``."""
        if key is not None and self.key_fields:
            return self.of_key.decode(key)
        for name in self.key_fields:
            if name in self.required:
                raise BadRecord("schema", f"required field {name}: no key")
        return dict.fromkeys(self.key_fields)

    def of_headers(self, headers: Headers) -> dict[str, Any]:
        """The fields that are headers; raises ``BadRecord``."""
        last, found = dict(headers), dict[str, Any]()
        for name, wanted in self.header_fields.items():
            given = last.get(wanted)
            found[name] = None if given is None else of_header(self.form_of(name), given)
            if given is None and name in self.required:
                raise BadRecord("schema", f"required field {name}: no header {wanted}")
            if given is not None and found[name] is None:
                raise BadRecord("schema", f"field {name}: expected a {self.told(name)}, got {given[:80]!r}")
        return found

    def _fields_of(self, document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, field_type in self.fields.items():
            if not self._is_of_value(name):
                continue
            given = _at(name, document, self.path_of(name)) if name in self.readings else document.get(name)
            form = self.form_of(name)
            if given is None:
                if name in self.required:
                    raise BadRecord("schema", f"required field {name} is missing or null")
                yield name, None
            elif form:
                yield name, _formed(name, form, given)
            else:
                yield name, _typed(name, field_type, given)


RecordSchema.__init__ = declares(RecordSchema.__init__)  # type: ignore[method-assign]


def require_types(what: str, fields: Mapping[str, object]) -> None:
    """Refuse what is declared as the type of a field of ``what`` and is none."""
    unlike = [
        f"{name!r}: {kind!r}"
        for name, kind in fields.items()
        if not (isinstance(name, str) and isinstance(kind, FieldType))
    ]
    require(not unlike, "not-fields", given=", ".join(unlike), field=what)


class _Real(float):
    """A number with a point or an exponent, and how it was written."""

    def __new__(cls, written: str) -> _Real:
        made = super().__new__(cls, written)
        made.written = written
        return made

    written: str


def _integer(digits: str) -> int | float:
    """An integer literal of any length; one beyond every type we declare is infinite (Python refuses 4,300 digits)."""
    return int(digits) if len(digits) <= 400 else math.copysign(math.inf, int(digits[:2]))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _at(name: str, document: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        if document is None:
            return None
        if not isinstance(document, dict):
            raise BadRecord("schema", f"field {name}: expected an object, got {_shown(document)}")
        document = document.get(step)
    return document


def _formed(name: str, form: Form, given: Any) -> Any:
    made = of_text(form, given) if isinstance(given, str) else None
    if made is None:
        raise BadRecord("schema", f"field {name}: expected a {form}, got {_shown(given)}")
    return made


def _typed(name: str, field_type: FieldType, given: Any) -> Any:
    match field_type.kind, given:
        case "string", str() if is_unicode(given):
            return given
        case "boolean", bool():
            return given
        case "long", int() if not isinstance(given, bool) and LONG_MIN <= given <= LONG_MAX:
            return given
        case "double", int() | float() if not isinstance(given, bool):
            number = _finite(given)
            if number is not None:
                return number
        case "decimal", int() | str() | _Real() if not isinstance(given, bool):
            exact = exact_decimal(given.written if isinstance(given, _Real) else str(given), field_type)
            if exact is not None:
                return exact
        case "list", list() if field_type.element is not None:
            return [_typed(f"{name}[{i}]", field_type.element, item) for i, item in enumerate(given)]
    raise BadRecord("schema", f"field {name}: expected {field_type}, got {_shown(given)}")


def _shown(given: Any) -> str:
    """The beginning of ``given`` in JSON; values can be nested so deep that they are read, but not written."""
    try:
        return json.dumps(given)[:80]
    except RecursionError:
        return f"a {type(given).__name__} that is nested too deep"


def is_unicode(text: str) -> bool:
    """False for a lone surrogate, which JSON can escape but UTF-8 cannot carry."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _finite(given: int | float) -> float | None:
    try:
        number = float(given)
    except OverflowError:
        return None
    return number if abs(number) != float("inf") else None


def exact_decimal(written: str, field_type: FieldType) -> Decimal | None:
    """The number ``written`` as ``decimal(precision, scale)``, or None where it has more digits or is no number.

    A double tells decimals of up to 15 digits apart (DBL_DIG, C17 5.2.4.2.2), so of these one may also be written as
    the double that stands for it: ``0.29999999999999999`` is 0.3.

    >>> [exact_decimal(written, decimal(15, 2)) for written in ("990.50", "1e2", "0.001")]
    [Decimal('990.50'), Decimal('100.00'), None]
    """
    if not NUMBER.fullmatch(written):
        return None
    may_be_double = field_type.precision <= DOUBLE_DIGITS
    try:
        number = Decimal(written)
        with localcontext(_WIDE):
            made = number.quantize(Decimal((0, (1,), -field_type.scale)))
            same = made == number or (may_be_double and float(made) == float(written))
    except InvalidOperation:  # more digits than any decimal has, or so small that no double tells it from 0
        return Decimal((0, (0,), -field_type.scale)) if may_be_double and float(written) == 0 else None
    fits = not made or made.adjusted() < field_type.precision - field_type.scale
    return abs(made) if same and not made else made if same and fits else None


def with_places(value: Any, kind: FieldType) -> Any:
    """``value`` of ``kind``, its decimals with all places that are declared: the text of a decimal says them.

    What reads decimals for us may give others: Spark's rows have ``4.0E-8`` for 0.00000004 (net.razorvine.pickle).

    >>> with_places(Decimal("4.0E-8"), decimal(15, 8)), with_places(Decimal("-0"), decimal(9, 2))
    (Decimal('4E-8'), Decimal('0.00'))
    """
    if isinstance(value, list) and kind.element is not None:
        return [with_places(one, kind.element) for one in value]
    if not isinstance(value, Decimal) or kind.kind != "decimal":
        return value
    made = value.quantize(Decimal((0, (1,), -kind.scale)), context=_WIDE)
    return value if made != value else made if made else made.copy_abs()


_WIDE = Context(prec=100)
