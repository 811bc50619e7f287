"""Every error of Recount's own tree that the code raises, read from the code: message, expected, remedy.

What is only known when the error occurs stands as … in it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter

from recount.runtime.errors import conditions

UNKNOWN = "…"
EITHER = " / "
Texts = Mapping[str, str]
_MADE_BY_FUNCTIONS = {"require": 1, "require_each": 0}  # which argument names the condition
_OUTSIDE = "BadRecord"
"""It ends nothing: it is the reason in a dead letter."""
_ROOT = "RecountError"
_GENERAL = frozenset({_ROOT, "InvalidDeclaration", *_MADE_BY_FUNCTIONS})
"""They hand on what they are given."""


@dataclass(frozen=True, kw_only=True, order=True)
class Raised:
    """One place that makes an error. ``room`` is the package that it lies in, ``branch`` Terminal or Transient."""

    room: str
    branch: str
    message: str
    expected: str
    remedy: str


def raised_in(package: Path) -> list[Raised]:
    """All of them, sorted, each once."""
    trees = {file.relative_to(package).as_posix(): ast.parse(file.read_text()) for file in package.rglob("*.py")}
    bases = _bases(trees)
    imported = _imported(trees.values())
    found = set()
    for place, tree in trees.items():
        room = place.split("/")[0].removesuffix(".py")
        found |= set(_Reader(room=room, bases=bases).of(tree, {**imported, **_assigned(tree.body, imported)}))
    return sorted(found)


def _imported(trees: Iterable[ast.Module]) -> Texts:
    """Constants by name, as one module imports them from another: those whose name one module alone gives."""
    given = [_assigned(tree.body, {}) for tree in trees]
    times = Counter(name for constants in given for name in constants)
    return {name: text for constants in given for name, text in constants.items() if times[name] == 1}


def _bases(trees: Mapping[str, ast.Module]) -> dict[str, tuple[str, bool]]:
    """By class of the tree of errors its base, and whether it makes its message itself."""
    classes = {node.name: node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found = {_ROOT: ("", False)}
    while more := [
        (name, base, node)
        for name, node in classes.items()
        for base in map(ast.unparse, node.bases)
        if name not in found and base in found
    ]:
        for name, base, node in more:
            own = any(isinstance(one, ast.FunctionDef) and one.name == "__init__" for one in node.body)
            found[name] = (base, own or found[base][1])
    return found


@dataclass(frozen=True, kw_only=True)
class _Reader:
    """Reads one module of the package ``room``."""

    room: str
    bases: Mapping[str, tuple[str, bool]]

    def of(self, node: ast.AST, known: Texts) -> Iterator[Raised]:
        """Below ``node``, where the names ``known`` stand for texts."""
        for child in ast.iter_child_nodes(node):
            if isinstance(node, ast.Module) and getattr(child, "name", "") in _GENERAL:
                continue
            inside = known
            if isinstance(child, ast.ClassDef) and child.name in self.bases:
                yield from self._of_class(child, known)
            if isinstance(child, ast.FunctionDef):
                inside = {**known, **_assigned(ast.walk(child), known)}
            if isinstance(child, ast.Call):
                yield from self._of_call(child, known)
            yield from self.of(child, inside)

    def _of_class(self, node: ast.ClassDef, known: Texts) -> Iterator[Raised]:
        """What a class tells its base."""
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__" and node.name != _OUTSIDE:
                yield self._raised(node.name, call, call.args[0], known)

    def _of_call(self, call: ast.Call, known: Texts) -> Iterator[Raised]:
        name = ast.unparse(call.func)
        made_by, _, factory = name.rpartition(".")
        if name in _MADE_BY_FUNCTIONS:
            yield self._of_condition("InvalidDeclaration", call.args[_MADE_BY_FUNCTIONS[name]], call, known)
        elif factory == "of" and made_by in self.bases:
            yield self._of_condition(made_by, call.args[0], call, known)
        elif name in self.bases and not self.bases[name][1] and text_of(call.args[0], known) != UNKNOWN:
            yield self._raised(name, call, call.args[0], known)

    def _of_condition(self, name: str, condition: ast.expr, call: ast.Call, known: Texts) -> Raised:
        """The texts of a condition in errors.toml; raises ``KeyError`` where the call lacks a value that they name."""
        told: dict[str | None, str] = {one.arg: text_of(one.value, known) for one in call.keywords}
        texts = {part: _filled(text, told) for part, text in conditions()[text_of(condition, known)].items()}
        return self._of_texts(name, texts.get("what", f"invalid {texts.get('field')}"), texts)

    def _raised(self, name: str, call: ast.Call, message: ast.expr, known: Texts) -> Raised:
        texts = {one.arg: text_of(one.value, known) for one in call.keywords if one.arg}
        return self._of_texts(name, text_of(message, known), texts)

    def _of_texts(self, name: str, message: str, texts: Texts) -> Raised:
        while name not in ("Terminal", "Transient"):
            name = self.bases[name][0]
        expected, remedy = texts.get("expected", ""), texts.get("remedy", "")
        return Raised(room=self.room, branch=name, message=message, expected=expected, remedy=remedy)


def _assigned(lines: Iterable[ast.AST], known: Texts) -> dict[str, str]:
    """What ``lines`` assign to names, where it is text; several texts of one name stand beside each other."""
    found: dict[str, set[str]] = {}
    for line in lines:
        if isinstance(line, ast.Assign) and len(line.targets) == 1 and isinstance(line.targets[0], ast.Name):
            found.setdefault(line.targets[0].id, set()).add(text_of(line.value, known))
    return {name: EITHER.join(sorted(texts)) for name, texts in found.items() if texts != {UNKNOWN}}


def _filled(text: str, told: Mapping[str | None, str]) -> str:
    """``text`` with what a call tells it, whatever the format."""
    parts = Formatter().parse(text)
    return "".join(literal + (told[name] if name is not None else "") for literal, name, _, _ in parts)


def text_of(node: ast.expr, known: Texts) -> str:
    """The text that ``node`` makes, as far as the code says it."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Constant(value=int(number)):
            return f"{number:,}"
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part, known) for part in parts)
        case ast.FormattedValue(value=value):
            return text_of(value, known)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text_of(left, known) + text_of(right, known)
        case ast.IfExp(body=body, orelse=other):
            return EITHER.join(sorted({text_of(body, known), text_of(other, known)}))
        case ast.Name(id=name):
            return known.get(name, UNKNOWN)
        case _:
            return UNKNOWN
