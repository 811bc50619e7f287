"""A class of the JVM is looked up once: PySpark looks one up for every column that it makes.

Py4J answers ``jvm.functions`` and ``functions.col`` by a call to the JVM each time. In an audit of a small night these
are three of ten calls, and the JVM searches all jars for a class that is named without its package.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JVMView


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


def keep_classes(jvm: JVMView) -> None:
    """Let ``jvm`` keep what it looks up."""
    jvm.__class__ = _View
