"""How many bytes a result has in its topic: "Results that are too large" of docs/semantics.md, without writing it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from recount.core.schema import FieldType

TOO_LARGE = "too-large"
_ESCAPED_BY_ONE = re.compile(r'["\\\b\f\n\r\t]')
_ESCAPED_BY_CODE = re.compile(r"[\x00-\x07\x0b\x0e-\x1f]")


def size_of_object(cells: Sequence[Any], kinds: Mapping[str, FieldType]) -> int:
    r"""The bytes of ``cells`` as a JSON object with the names of ``kinds``.

    >>> from recount.core.schema import LONG, STRING
    >>> size_of_object(['say "é"\n', -5], {"text": STRING, "n": LONG}), len('{"text":"say \\"é\\"\\n","n":-5}'.encode())
    (30, 30)
    """
    members = [_of_name(name) + 1 + _of(cell, kind) for cell, (name, kind) in zip(cells, kinds.items(), strict=True)]
    return 2 + sum(members) + max(0, len(members) - 1)


def plain_size(cell: Any, kind: FieldType) -> int:
    """The bytes of ``cell`` as a plain value; of a null, which is a null value, none."""
    if cell is None:
        return 0
    return len(cell.encode()) if kind.kind == "string" else _of(cell, kind)


def _of(cell: Any, kind: FieldType) -> int:
    if cell is None:
        return 4
    if kind.element is not None:
        return 2 + sum(_of(one, kind.element) for one in cell) + max(0, len(cell) - 1)
    match kind.kind:
        case "string":
            return 2 + len(cell.encode()) + len(_ESCAPED_BY_ONE.findall(cell)) + 5 * len(_ESCAPED_BY_CODE.findall(cell))
        case "boolean":
            return 4 if cell else 5
        case "decimal":
            return int(cell < 0) + len(str(abs(int(cell)))) + (1 + kind.scale if kind.scale else 0)
        case "double":
            return len(repr(float(cell)))
    return len(str(cell))


def _of_name(name: str) -> int:
    """In quotes, and in ASCII: another character is written as one code of six bytes, or beyond 16 bits as two."""
    return 2 + sum(1 if one.isascii() else 6 if ord(one) < 0x10000 else 12 for one in name)
