"""Fewer calls from Python to the JVM: PySpark makes one for nearly all that it says of a column.

Py4J answers ``jvm.functions`` and ``functions.col`` by a call each time. In an audit of a small night these are three
of ten calls, and the JVM searches all jars for a class that is named without its package. Lists it hands over element
by element.
"""

from __future__ import annotations

from typing import Any

from py4j.java_collections import ListConverter
from py4j.java_gateway import JavaClass, JavaMember, JVMView
from py4j.protocol import INPUT_CONVERTER, STATIC_PREFIX, register_input_converter

_AT_A_TIME = 10
"""So many elements ``java.util.List.of`` takes one by one."""


class _View(JVMView):  # type: ignore[misc]
    """Keeps the classes that were asked for, and no package: a class of its name may come with a later jar."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaClass):
            found.__class__ = _Class
            setattr(self, name, found)
        return found


class _Class(JavaClass):  # type: ignore[misc]
    """Keeps its static methods, and no static field: its value may change."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            setattr(self, name, found)
        return found


class _Lists(ListConverter):  # type: ignore[misc]
    """Makes an ``ArrayList`` as Py4J does, of ``_AT_A_TIME`` elements a call."""

    def can_convert(self, given: object) -> bool:
        return isinstance(given, list | tuple)

    def convert(self, given: list[Any] | tuple[Any, ...], client: Any) -> Any:
        if len(given) < 3 or any(one is None for one in given):  # List.of takes no null
            return super().convert(given, client)
        of = JavaMember("of", None, f"{STATIC_PREFIX}java.util.List", client)
        first, *others = (of(*given[at : at + _AT_A_TIME]) for at in range(0, len(given), _AT_A_TIME))
        made = JavaClass("java.util.ArrayList", client)(first)
        for part in others:
            made.addAll(part)
        return made


def make_fewer_calls(jvm: JVMView) -> None:
    """Let ``jvm`` keep what it looks up, and get lists in parts."""
    jvm.__class__ = _View
    if not any(isinstance(one, _Lists) for one in INPUT_CONVERTER):
        register_input_converter(_Lists(), prepend=True)
