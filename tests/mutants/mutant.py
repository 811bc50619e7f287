"""A rule made wrong, as a replacement in the source; and a boundary of a rule that is left as it is, with the reason.

A site is a piece of code that occurs once in a function or class (or in the module, where none is named).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_SWAPPED = {"<=": "<", ">=": ">", " < ": " <= ", " > ": " >= "}


@dataclass(frozen=True, kw_only=True)
class Site:
    """``code`` in the function or class ``inside`` of the module ``file``."""

    file: str
    inside: str
    code: str

    def span(self, source: str) -> tuple[int, int]:
        """Where in ``source`` the code stands; raises ``LookupError`` where it is not there, or not once."""
        first, last = _lines(_tree(source), self.inside.split(".")) if self.inside else (1, source.count("\n") + 1)
        lines = source.splitlines(keepends=True)
        text = "".join(lines[first - 1 : last])
        if text.count(self.code) != 1:
            raise LookupError(f"{text.count(self.code)} times in {self.file}, {self.inside}: {self.code}")
        start = len("".join(lines[: first - 1])) + text.index(self.code)
        return start, start + len(self.code)


@dataclass(frozen=True, kw_only=True)
class Mutant(Site):
    """The code of a ``rule`` replaced."""

    rule: str
    replacement: str

    def apply(self, source: str) -> str:
        """``source`` with the mutant."""
        start, end = self.span(source)
        return source[:start] + self.replacement + source[end:]

    @property
    def is_shared(self) -> bool:
        """Whether interpreter and stream have it both."""
        return self.file.startswith("declare/")


@dataclass(frozen=True, kw_only=True)
class Untried(Site):
    """A boundary without a mutant, and why."""

    reason: str


@lru_cache(maxsize=256)
def _tree(source: str) -> ast.Module:
    return ast.parse(source)


def _lines(tree: ast.AST, names: list[str]) -> tuple[int, int]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == names[0]:
            return (node.lineno, node.end_lineno or 0) if len(names) == 1 else _lines(node, names[1:])
    raise LookupError(".".join(names))


def other(file: str, inside: str, rule: str, code: str, *replacements: str) -> Iterator[Mutant]:
    """The code replaced by each of ``replacements``."""
    for replacement in replacements:
        yield Mutant(rule=rule, file=file, inside=inside, code=code, replacement=replacement)


def bound(file: str, inside: str, rule: str, code: str) -> Iterator[Mutant]:
    """The bound ``code`` a millisecond too late and too early."""
    return other(file, inside, rule, code, f"({code} + 1)", f"({code} - 1)")


def comparison(file: str, inside: str, rule: str, code: str) -> Iterator[Mutant]:
    """The comparison in ``code`` with the bound itself on the other side."""
    [(sign, opposite)] = [(sign, opposite) for sign, opposite in _SWAPPED.items() if code.count(sign) == 1]
    return other(file, inside, rule, code, code.replace(sign, opposite))
