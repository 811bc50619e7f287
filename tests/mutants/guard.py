"""Rules of ``declare`` that raise as soon as the recompute asks them: so it is seen to have its own, in every scene.

A copy of the package gets a guard at the head of every function that has a mutant. While the recompute is at work the
file ``GUARDED`` lies beside the package, and a guard that is reached raises, in Spark's workers as well.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.mutants.mutant import Mutant

GUARDED = "the-recompute-is-at-work"


def guard(package: Path, mutants: Iterable[Mutant]) -> None:
    """Put guards into the modules below ``package``."""
    inside: dict[str, set[str]] = defaultdict(set)
    for mutant in mutants:
        if can_be_guarded(mutant):
            inside[mutant.file].add(mutant.inside)
    for file, names in inside.items():
        source = (package / file).read_text()
        (package / file).write_text(guarded(source, names, package.parent / GUARDED))


def can_be_guarded(mutant: Mutant) -> bool:
    """Whether it is in a function of ``declare`` rather than among a class's or a module's own names."""
    name = mutant.inside.rpartition(".")[2]
    return mutant.is_shared and name == name.lower() != ""


def guarded(source: str, names: Iterable[str], flag: Path) -> str:
    """``source`` with guards in the functions called ``names``."""
    lines = source.splitlines(keepends=True)
    heads = sorted((_head(ast.parse(source), name.split(".")) for name in names), key=lambda head: -head.lineno)
    for head in heads:
        check = f"if __import__('os').path.exists({str(flag)!r}): raise AssertionError('the recompute asks the stream')"
        lines.insert(head.lineno - 1, f"{' ' * head.col_offset}{check}\n")
    return "".join(lines)


@contextmanager
def recompute_at_work(package: Path) -> Iterator[None]:
    """Within it the guards raise."""
    flag = package.parent / GUARDED
    flag.touch()
    try:
        yield
    finally:
        flag.unlink()


def _head(tree: ast.AST, names: list[str]) -> ast.stmt:
    """The first statement of the function behind its docstring."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == names[0]:
            if len(names) > 1:
                return _head(node, names[1:])
            has_docstring = len(node.body) > 1 and isinstance(node.body[0], ast.Expr)
            return node.body[1 if has_docstring else 0]
    raise LookupError(".".join(names))
