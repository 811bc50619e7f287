"""What a plain value may hold: "Plain values" of docs/semantics.md, told of one value at a time."""

from __future__ import annotations

from typing import Any

from recount.core.schema import FieldType
from recount.recompute.rules.json_values import NUMBER, Bad, Written, typed

_FLAGS = {"true": True, "false": False}


def scalar_of(value: bytes, kind: FieldType) -> Any:
    """The bytes of ``value`` as ``kind`` holds them; raises ``Bad``."""
    if kind.kind == "string":
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError as error:
            raise Bad("undecodable", f"no UTF-8: {error}") from error
    text = str(value, "ascii", "backslashreplace")
    if kind.kind == "boolean":
        made: Any = _FLAGS.get(text)
    else:
        made = typed(Written(text), kind) if NUMBER.fullmatch(text) else None
    if made is None:
        raise Bad("schema", f"the value is no {kind}: {text[:80]}")
    return made
