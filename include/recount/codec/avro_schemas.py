"""Avro schemas as trees, by the specification of Avro 1.11: names resolved, what no reader needs left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recount.core.nesting import is_too_deep

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_COMPLEX = frozenset({"record", "error", "enum", "array", "map", "fixed"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})
_MOST_NESTED = 200
"""Objects and arrays of a schema's text that lie in one another; a record in a record takes three or four."""


class NoAvroSchema(Exception):
    """A text that is no schema of Avro."""


@dataclass(eq=False)
class AvroType:
    """One type. ``of`` has the items of an array, the values of a map, the branches of a union, in order."""

    kind: str
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    fields: dict[str, AvroType] = field(default_factory=dict)
    of: list[AvroType] = field(default_factory=list)

    def __str__(self) -> str:
        if self.kind == "union":
            return f"union of {', '.join(map(str, self.of))}"
        if self.kind == "array":
            return f"array of {self.of[0]}"
        if self.logical == "decimal":
            return f"decimal({self.precision}, {self.scale})"
        return f"{self.kind} ({self.logical})" if self.logical else self.kind


def parsed_schema(text: str) -> AvroType:
    """The schema that ``text`` is; raises ``NoAvroSchema``."""
    if is_too_deep(text.encode(errors="replace"), _MOST_NESTED):
        raise NoAvroSchema(f"more than {_MOST_NESTED} objects and arrays lie in one another")
    try:
        return _Parsing({}).parsed(json.loads(text), "")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise NoAvroSchema(f"{type(error).__name__}: {error}") from error


class _Parsing:
    def __init__(self, named: dict[str, AvroType]) -> None:
        self._named = named

    def parsed(self, found: Any, namespace: str) -> AvroType:
        if isinstance(found, list):
            return AvroType(kind="union", of=[self.parsed(one, namespace) for one in found])
        if isinstance(found, str):
            return AvroType(kind=found) if found in PRIMITIVES else self._by_name(found, namespace)
        kind = found["type"]
        if not isinstance(kind, str):
            return self.parsed(kind, namespace)
        if kind in PRIMITIVES:
            return _logical(AvroType(kind=kind), found)
        return self._complex(kind, found, namespace) if kind in _COMPLEX else self._by_name(kind, namespace)

    def _by_name(self, name: str, namespace: str) -> AvroType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        return self._named[full] if full in self._named else self._named[name]

    def _complex(self, kind: str, found: Mapping[str, Any], namespace: str) -> AvroType:
        made = AvroType(kind="record" if kind == "error" else kind)
        if kind in _NAMED:
            name = found["name"]
            space, _, last = name.rpartition(".") if "." in name else (found.get("namespace", namespace), "", name)
            namespace = space or ""
            self._named[f"{namespace}.{last}" if namespace else last] = made
        if kind in ("array", "map"):
            made.of.append(self.parsed(found["items" if kind == "array" else "values"], namespace))
        if kind == "enum":
            made.symbols = tuple(found["symbols"])
        if kind == "fixed":
            made.size = _whole(found["size"])
            _logical(made, found)
        for one in found["fields"] if made.kind == "record" else ():
            made.fields[one["name"]] = self.parsed(one["type"], namespace)
        return made


def _logical(made: AvroType, found: Mapping[str, Any]) -> AvroType:
    """A logical type that is not well-formed counts as none, as the specification wants."""
    logical = found.get("logicalType")
    if logical == "decimal":
        precision, scale = found.get("precision"), found.get("scale", 0)
        if made.kind in ("bytes", "fixed") and type(precision) is type(scale) is int and 0 <= scale <= precision:
            made.logical, made.precision, made.scale = "decimal", precision, scale
    elif isinstance(logical, str):
        made.logical = logical
    return made


def _whole(size: Any) -> int:
    if type(size) is not int or size < 0:
        raise ValueError(f"size {size}")
    return size
