"""The meaning of a declaration, as one canonical document and its SHA-256.

Two declarations with one fingerprint give the same results from the same log. The document holds every operator with
all its parameters, except those listed here as without influence on a result. It does not depend on names of Python
variables, on the order of declarations, sinks or keywords, nor on the process.

A Python function is in it by its instructions, constants, defaults and the values of its closure, and by the functions
and constants of the user's own modules that its code names. Names of local variables, files, lines and docstrings are
not in it; functions of libraries are known by their names. The instructions are those of one minor version of Python:
under another one the same function has another document.
"""

import dis
import functools
import hashlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cached_property
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Self
from uuid import UUID

from recount.declare.expressions import Call, Column, Expression, Literal
from recount.declare.groups import Archive
from recount.declare.operators.nodes import Node, Sink, Source
from recount.declare.operators.stateless import Foreach, Peek, Repartition, Through
from recount.declare.schema import FieldType
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import TimeWindows

_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_CODE_WITHOUT_MEANING = frozenset({"CACHE", "RESUME", "NOP", "EXTENDED_ARG"})
_PLAIN = (float, complex, bytes, Decimal, Fraction, date, time, timedelta, Enum, PurePath, UUID, range, re.Pattern)
"""Values of which ``repr`` says all."""
_FLAGS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
_ABSENT = object()
_LIBRARIES = ("site-packages", "dist-packages")
FORMAT = 1
"""Of the document. A change of it changes every fingerprint: raise ``SEMANTICS_VERSION`` instead where rules change."""
SEMANTICS_VERSION = 1
"""Of docs/semantics.md as engine, recompute and interpreter apply it: raised when the same declaration means more,
less or something else than before."""
Document = Mapping[str, Any]
TOPOLOGY_MEANS = ("idle_after", "max_future")
_PASS = (Peek, Repartition)
"""Operators that hand every record on and change none; their parameters mean nothing to a result."""
_INPUTS = frozenset({"input", "inputs", "left", "right"})
_WITHOUT_MEANING = frozenset({"action", "word"})
_WORDS = {"WindowedAggregate": "aggregation", "WithFields": "fields", "FlatMap": "map", "SelectKey": "key"}


def code_of(function: Callable[..., Any]) -> object:
    """The document of ``function``: lists, texts and numbers only."""
    return _of(function, {})


def _of(value: Any, met: dict[int, int]) -> object:
    """``met`` numbers what is being looked at, so that functions may name each other."""
    match value:
        case None | bool() | int() | str():
            return [type(value).__name__, str(value)]
        case BuiltinFunctionType() | ModuleType():
            return ["named", _name(value)]
        case type() if _is_library(value.__module__, getattr(sys.modules.get(value.__module__), "__file__", None)):
            return ["named", _name(value)]
        case _ if isinstance(value, _PLAIN):
            return [type(value).__name__, repr(value)]
    if id(value) in met:
        return ["met", met[id(value)]]
    met[id(value)] = len(met)
    match value:
        case tuple() | list():
            return [type(value).__name__, *(_of(one, met) for one in value)]
        case set() | frozenset():
            return [type(value).__name__, *sorted((_of(one, {}) for one in value), key=repr)]
        case Mapping():
            pairs = ([_of(key, {}), _of(one, {})] for key, one in value.items())
            return ["mapping", *sorted(pairs, key=repr)]
        case FunctionType():
            return _function(value, met)
        case type():
            return _class(value, met)
        case staticmethod() | classmethod():
            return [type(value).__name__, _of(value.__func__, met)]
        case property():
            return ["property", _of(value.fget, met)]
        case MethodType():
            return ["method", _of(value.__func__, met), _of(value.__self__, met)]
        case functools.partial():
            return ["partial", *(_of(part, met) for part in (value.func, value.args, value.keywords))]
    return _instance(value, met)


def _function(function: FunctionType, met: dict[int, int]) -> object:
    cells = [_of(_contents(cell), met) for cell in function.__closure__ or ()]
    defaults = [_of(function.__defaults__, met), _of(function.__kwdefaults__, met)]
    if _is_library(function.__module__, function.__code__.co_filename):
        return ["named", _name(function), cells, defaults]
    names = {**vars(sys.modules["builtins"]), **function.__globals__}
    return ["function", _instructions(function.__code__, names, met), cells, defaults]


def _instructions(code: CodeType, names: Mapping[str, Any], met: dict[int, int]) -> object:
    found: list[object] = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _FLAGS]
    module: object = None
    for one in dis.get_instructions(code):
        if one.opname in _CODE_WITHOUT_MEANING:
            continue
        before, module = module, None
        if one.opname in _GLOBALS:
            value = names.get(str(one.argval), _ABSENT)
            module = value
            found.append([one.opname, one.argval if value is _ABSENT else _of(value, met)])
        elif isinstance(one.argval, CodeType):
            found.append([one.opname, _instructions(one.argval, names, met)])
        elif one.opcode in dis.hasconst:
            found.append([one.opname, _of(one.argval, met)])
        elif one.opcode in dis.hasname and _is_own_module(before) and hasattr(before, str(one.argval)):
            module = getattr(before, str(one.argval))
            found.append([one.opname, _of(module, met)])
        elif one.opcode in dis.hasname:
            found.append([one.opname, str(one.argval)])
        else:
            found.append([one.opname, one.arg])
    found.append(code.co_exceptiontable.hex())
    return found


def _class(kind: type, met: dict[int, int]) -> object:
    """A class of the user's own by its bases, what its methods do and its plain values."""
    if issubclass(kind, Enum):
        return ["enum", _name(kind), sorted(map(repr, kind))]
    kinds = (FunctionType, staticmethod, classmethod, property, *_PLAIN, bool, int, str, tuple, frozenset)
    generated = {"__module__", "__qualname__", "__doc__", "__firstlineno__", "__static_attributes__", "__match_args__"}
    own = {name: one for name, one in vars(kind).items() if isinstance(one, kinds) and name not in generated}
    bases = [_of(base, met) for base in kind.__bases__]
    return ["class", _name(kind), bases, [[name, _of(own[name], met)] for name in sorted(own)]]


def _instance(value: Any, met: dict[int, int]) -> object:
    """An object of the user's own by its type, what it holds and what it does when it is called; others by their type.

    What a library's object holds can be anything: locks, connections, caches.
    """
    kind = type(value)
    wrapped = getattr(value, "__wrapped__", None)
    if isinstance(wrapped, FunctionType):
        return ["wrapped", _name(kind), _of(wrapped, met)]
    if _is_library(kind.__module__, getattr(sys.modules.get(kind.__module__), "__file__", None)):
        return ["a", _name(kind)]
    return ["object", _of(kind, met), _of(getattr(value, "__dict__", None), met)]


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _is_library(module: str | None, file: str | None) -> bool:
    first = (module or "").split(".")[0]
    installed = any(folder in (file or "") for folder in _LIBRARIES)
    return first == "recount" or first in sys.stdlib_module_names - {"__main__"} or installed


def _is_own_module(value: object) -> bool:
    return isinstance(value, ModuleType) and not _is_library(value.__name__, getattr(value, "__file__", None))


def _name(value: Any) -> str:
    module = getattr(value, "__module__", None) or ""
    return f"{module}.{getattr(value, '__qualname__', None) or getattr(value, '__name__', '')}"


@dataclass(frozen=True, kw_only=True)
class Declared:
    document: Document

    @classmethod
    def of(cls, declaration: Topology | Archive) -> Self:
        if isinstance(declaration, Archive):
            return cls(document={"format": FORMAT, "kind": "archive", "topic": declaration.topic.name})
        return cls(document=_topology(declaration))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON of the document."""
        return digest(self.document)


def digest(value: object) -> str:
    """SHA-256 of ``value`` as JSON without spaces, keys sorted."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def operator_numbers(topology: Topology) -> dict[Node, int]:
    """The operators that mean something, numbered inputs first, alike for every order in which sinks are declared.

    Every ``Source`` of one topic has one number.
    """
    forks = topology.forks()
    digests: dict[Node, str] = {}
    for node in topology.nodes():
        above = [digests[one] for one in node.inputs]
        digests[node] = above[0] if _is_passed(node) else digest([above, _operator(node, forks)])
    numbers: dict[Node, int] = {}
    by_topic: dict[str, int] = {}

    def number(node: Node) -> None:
        for one in node.inputs:
            if one not in numbers:
                number(one)
        if isinstance(node, Source):
            numbers[node] = by_topic.setdefault(node.topic.name, len(set(numbers.values())))
        elif not _is_passed(node):
            numbers[node] = len(set(numbers.values()))
        else:
            numbers[node] = numbers[node.inputs[0]]

    ends: tuple[Node, ...] = (*topology.sinks, *topology.actions)
    for end in sorted(ends, key=lambda node: (isinstance(node, Foreach), digests[node])):
        number(end)
    return {node: place for node, place in numbers.items() if not _is_passed(node)}


def _topology(topology: Topology) -> Document:
    numbers = operator_numbers(topology)
    forks = topology.forks()
    found: dict[int, dict[str, Any]] = {}
    for node, number in numbers.items():
        above = [numbers[_meant(one)] for one in node.inputs]
        found[number] = {**_operator(node, forks), **({"reads": above} if above else {})}
    return {
        "format": FORMAT,
        "semantics": SEMANTICS_VERSION,
        "kind": "topology",
        **{f"{name}_ms": getattr(topology, f"{name}_ms") for name in TOPOLOGY_MEANS},
        "operators": [found[number] for number in sorted(found)],
    }


def _operator(node: Node, forks: Mapping[tuple[Node, int], int]) -> dict[str, Any]:
    word = _WORDS.get(type(node).__name__, _spaced(type(node).__name__))
    ways = [_ways(node, port, forks) for port in range(len(node.inputs))]
    order = {"order": ways} if any(ways) else {}
    if isinstance(node, Foreach):
        return {"operator": "for each", **order}
    if isinstance(node, Source):
        return {"operator": "source", **_read(node.topic), "key": node.key}
    names = [one.name for one in fields(node) if one.name not in _INPUTS | _WITHOUT_MEANING]
    given = {name: _value(getattr(node, name)) for name in names if name != "topic"}
    if isinstance(node, Sink | Through):
        # its key and fields follow from what is above; they are said for who compares two documents
        made = {name: str(kind) for name, kind in node.fields.items()}
        given |= {"topic": node.topic.name, "key": node.key, "fields": made, **_encoding(node.topic)}
    elif "key" not in given:
        given["key"] = node.key
    return {"operator": word, **{name: value for name, value in given.items() if value is not None}, **order}


def _read(topic: Topic) -> dict[str, Any]:
    """Return what of a source's topic decides how records are read; retention, replication, settings change nothing."""
    assert topic.value is not None
    declared = {
        name: f"{topic.value.told(name)}{' required' * (name in topic.value.required)}" for name in topic.value.fields
    }
    event_time = {"event_time": topic.event_time} if topic.event_time else {}
    key_form = {} if topic.key_form == "text" else {"key_form": topic.key_form}
    return {"topic": topic.name, "schema": declared, **_encoding(topic), **key_form, **event_time}


def _encoding(topic: Topic) -> dict[str, Any]:
    """Nothing for JSON, as it was before there were plain values."""
    if topic.is_of_registry:
        return {"encoding": topic.encoding}
    return {} if topic.plain_field is None else {"encoding": "plain"}


def _value(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float() | Decimal():
            return [type(value).__name__.lower(), str(value)]
        case Expression():
            return _expression(value)
        case FieldType():
            return str(value)
        case TimeWindows():
            return _time_windows(value)
        case Mapping():
            return {str(name): _value(one) for name, one in value.items()}
        case tuple() | list():
            return [_value(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        held = {one.name: _value(getattr(value, one.name)) for one in fields(value)}
        kind = {} if "kind" in held else {"kind": _kind(value)}
        return {**kind, **{name: one for name, one in held.items() if one is not None}}
    if isinstance(value, Callable):  # type: ignore[arg-type]
        return f"code {digest(code_of(value))}"
    raise AssertionError(f"a parameter of an operator that has no canonical form: {value!r}")


def _time_windows(windows: TimeWindows) -> dict[str, Any]:
    """Without an origin as it was before there were origins."""
    advance = {} if windows.advance_ms == windows.size_ms else {"advance_ms": windows.advance_ms}
    origin = {"origin_ms": windows.origin_ms} if windows.origin_ms else {}
    kind = "hopping" if advance else "tumbling"
    return {"kind": kind, "size_ms": windows.size_ms, **advance, "grace_ms": windows.grace_ms, **origin}


def _expression(tree: Expression) -> list[Any]:
    match tree:
        case Column(name):
            return ["column", name]
        case Literal(value):
            return ["constant", type(value).__name__, str(value)]
        case Call(name, arguments):
            return [name, *map(_expression, arguments)]
    raise AssertionError(tree)


def _kind(value: object) -> str:
    names = {"TimeWindows": "hopping", "SlidingWindows": "sliding", "SessionWindows": "session", "LastN": "last n"}
    return names.get(type(value).__name__, _spaced(type(value).__name__))


def _ways(node: Node, port: int, forks: Mapping[tuple[Node, int], int]) -> list[int]:
    """Where ``node`` comes among the readers of what it reads, and so on through operators that pass records on."""
    found = [forks[node, port]] if (node, port) in forks else []
    above = node.inputs[port]
    return [*found, *_ways(above, 0, forks)] if _is_passed(above) else found


def _is_passed(node: Node) -> bool:
    return isinstance(node, _PASS) and not isinstance(node, Foreach)


def _meant(node: Node) -> Node:
    while _is_passed(node):
        [node] = node.inputs
    return node


def _spaced(name: str) -> str:
    def letters() -> Iterator[str]:
        for place, letter in enumerate(name):
            yield f" {letter.lower()}" if letter.isupper() and place else letter.lower()

    return "".join(letters())
