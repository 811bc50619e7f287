"""A topic's value that is one scalar in text, not a JSON object: what it may hold, and how it is written.

* ``STRING`` is the value's bytes as UTF-8 text, as they are; an empty value is the empty text.
* ``LONG``, ``DOUBLE`` and ``decimal`` are one number as JSON writes it, ``BOOLEAN`` is ``true`` or ``false``, and
  nothing else: no quotes, no space or line end before or behind. Which numbers a type takes is the rule of ``schema``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from recount.declare.schema import NUMBER, BadRecord, FieldType, RecordSchema
from recount.runtime.errors import require, require_each

_SCALAR = re.compile(rb"true|false|" + NUMBER.pattern.encode())


@dataclass(frozen=True, kw_only=True)
class PlainValue:
    """A value that is one scalar of the type ``kind``; a record has it in its field ``name``.

    >>> from recount.declare.schema import STRING, decimal
    >>> PlainValue.of(text=STRING).decode(b"hello")
    {'text': 'hello'}
    >>> PlainValue.of(amount=decimal(15, 2)).decode(b"990.5")
    {'amount': Decimal('990.50')}
    """

    name: str
    kind: FieldType
    required: ClassVar[frozenset[str]] = frozenset()
    """None: the field of a record with a value is never null."""

    def __post_init__(self) -> None:
        require_each("plain-value-of-no-type", [self.kind], FieldType, name=self.name)
        assert self._in_json
        require(self.kind.kind != "list", "plain-value-of-another-type", given=str(self.kind), name=self.name)

    @classmethod
    def of(cls, **field: FieldType) -> Self:
        """A plain value written as a keyword: ``PlainValue.of(text=STRING)``."""
        require(len(field) == 1, "plain-value-of-many-fields", given=", ".join(field))
        [(name, kind)] = field.items()
        return cls(name=name, kind=kind)

    @property
    def fields(self) -> Mapping[str, FieldType]:
        return {self.name: self.kind}

    def told(self, name: str) -> str:
        """The type of the field ``name``, as ``RecordSchema.told`` says it."""
        return str(self.fields[name])

    def decode(self, value: bytes) -> dict[str, Any]:
        if self.kind.kind == "string":
            try:
                return {self.name: value.decode("utf-8")}
            except UnicodeDecodeError as error:
                raise BadRecord("undecodable", str(error)) from error
        document = self.as_json(value)
        if document is None:
            raise BadRecord("schema", f"field {self.name}: expected {self.kind}, got {value[:80]!r}")
        return self._in_json.decode(document)

    def as_json(self, value: bytes) -> bytes | None:
        """The JSON object with the number or boolean ``value`` in the field; None where it is none as JSON writes it.

        >>> from recount.declare.schema import LONG
        >>> PlainValue.of(n=LONG).as_json(b"-12"), PlainValue.of(n=LONG).as_json(b" 12")
        (b'{"n":-12}', None)
        """
        return b'{"%s":%s}' % (self.name.encode(), value) if _SCALAR.fullmatch(value) else None

    @cached_property
    def _in_json(self) -> RecordSchema:
        return RecordSchema(fields=self.fields)
