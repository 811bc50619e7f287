"""What a Python function does, as a plain document: the same in every process, whatever its variables are called.

It holds the instructions, constants, defaults and the values of a closure, and follows the functions and constants of
the user's own modules that the code names. A name of a local variable, a file, a line or a docstring is not in it;
nor is what a library does, whose functions are known by their names. The instructions are those of one minor version of
Python: under another one the same function has another document.
"""

from __future__ import annotations

import dis
import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from uuid import UUID

_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_WITHOUT_MEANING = frozenset({"CACHE", "RESUME", "NOP", "EXTENDED_ARG"})
_PLAIN = (float, complex, bytes, Decimal, Fraction, date, time, timedelta, Enum, PurePath, UUID, range, re.Pattern)
"""Values of which ``repr`` says all."""
_FLAGS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
_ABSENT = object()
_LIBRARIES = ("site-packages", "dist-packages")


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
        if one.opname in _WITHOUT_MEANING:
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
