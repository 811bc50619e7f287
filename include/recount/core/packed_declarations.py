"""Declarations as bytes, from a process that has imported them to one that must not.

A process that has imported a module goes on with it when another one is deployed. So the modules are imported by a
process of their own, and what they declare is read here without them: in place of functions and of objects of others
stand stand-ins, which have their names and cannot be called.
"""

from __future__ import annotations

import io
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

from recount.core.errors import Terminal
from recount.core.registry import Declarations, declared

_OURS = __name__.partition(".")[0]
_LIBRARIES = ("site-packages", "dist-packages")


@dataclass(frozen=True, kw_only=True)
class Packed:
    """What modules declare, and the ``files`` from which that was imported, libraries apart."""

    declarations: Declarations
    files: tuple[str, ...]


class StandIn:
    """In place of the function or object ``name`` of a module that is not imported here."""

    def __init__(self, module: str, name: str) -> None:
        self.__module__, self.__name__, self.__qualname__ = module, name.rpartition(".")[2], name

    def __call__(self, *_: object, **__: object) -> Any:
        raise Terminal(
            "a function of a declaration is not here",
            given=f"{self.__module__}.{self.__qualname__}",
            expected="a process that has imported the declaration",
            remedy="a fault of Recount: report it, with what was asked for",
        )


def packed(modules: str) -> bytes:
    """Import ``modules``; what they declare, for ``unpacked``."""
    before = set(sys.modules)
    declarations = declared(modules)
    found = (sys.modules[name] for name in set(sys.modules) - before if not name.startswith(f"{_OURS}."))
    files = sorted({str(module.__file__) for module in found if getattr(module, "__file__", None)})
    own = tuple(file for file in files if not _is_library(file))
    packing = io.BytesIO()
    _Packing(packing).dump(Packed(declarations=declarations, files=own))
    return packing.getvalue()


def unpacked(said: bytes) -> Packed:
    """The declarations that ``packed`` made bytes of; only for what a process of ours has said."""
    found: Packed = pickle.loads(said)  # noqa: S301 - see above
    return found


class _Packing(pickle.Pickler):
    def reducer_override(self, one: Any) -> Any:
        if isinstance(one, MappingProxyType):
            return MappingProxyType, (dict(one),)
        if isinstance(one, ModuleType):
            return StandIn, (one.__name__, one.__name__)
        if isinstance(one, FunctionType | MethodType | type):
            return NotImplemented if _is_found(one) else (StandIn, (str(one.__module__), one.__qualname__))
        return NotImplemented if _is_found(type(one)) else (StandIn, (type(one).__module__, type(one).__qualname__))


def _is_found(one: Any) -> bool:
    """Whether the reader has it by its name: Python's own, and ours where it is at the top of a module."""
    root = str(one.__module__).partition(".")[0]
    return root in {_OURS, *sys.stdlib_module_names} and "<" not in one.__qualname__ and not isinstance(one, MethodType)


def _is_library(file: str) -> bool:
    parts = Path(file).parts
    return any(name in parts for name in _LIBRARIES) or file.startswith(str(Path(pickle.__file__).parent))
