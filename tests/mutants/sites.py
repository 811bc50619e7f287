"""The boundaries of the rule modules, found in their syntax: each is in the catalogue, or stands here with a reason."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.mutant import Site

RULE_MODULES = (
    *(
        f"declare/{name}.py"
        for name in ("aggregates", "flow", "plain_values", "schema", "topology", "values", "windows")
    ),
    *(
        f"declare/operators/{name}.py"
        for name in ("event_time", "joins", "keys_and_fields", "placement", "processing", "tables")
    ),
    *(f"formats/{name}.py" for name in ("avro_values", "json_values", "record_decoder", "registry_decoders")),
    *(f"formats/protobuf_{name}.py" for name in ("resolution", "schemas")),
    *(f"engine/stage/{name}.py" for name in ("exact_sums", "intake", "reduction")),
    "engine/exchange/graph_part.py",
    "engine/state/keyed_rows.py",
)
"""And every module of ``engine/operators``."""
_NO_RULES = {
    "engine/state/keyed_rows.py": {"Run", "RunSizes", "places_of"},
    "engine/exchange/graph_part.py": {"GraphPart"},
    "declare/values.py": {"is_too_deep", "has_too_deep"},
    "engine/operators/batch_windows.py": {"with_record"},
}
"""How rows are held and dealt out, never which (tests/unit/engine/state/test_keyed_rows.py); depth of JSON; words of an
error."""
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_SEARCHES = frozenset({"bisect_left", "bisect_right", "search_sorted", "is_between", "join_asof"})
_WITH_DEFAULTS = frozenset(
    {"declare/flow.py", "declare/topology.py", "declare/operators/joins.py", "declare/operators/tables.py"}
)
Place = tuple[int, int]
"""From which character of the source to which."""


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """The ``code`` of one, and where it stands."""

    file: str
    place: Place
    code: str


def rule_modules(root: Path) -> list[str]:
    """All of them, of the package below ``root``."""
    operators = sorted((root / "engine" / "operators").glob("*.py"))
    return [*RULE_MODULES, *(f"engine/operators/{file.name}" for file in operators)]


def boundaries(file: str, source: str) -> Iterator[Place]:
    """From where to where each stands: comparisons by order, searches, sums of milliseconds, and defaults."""
    lines = source.splitlines(keepends=True)
    for node in _of_rules(file, ast.parse(source)):
        if _is_boundary(node):
            yield _place(lines, node)
        elif file in _WITH_DEFAULTS:
            yield from (_place(lines, default) for default in _defaults(node))


def uncovered(root: Path, sites: Iterable[Site]) -> list[Boundary]:
    """The boundaries of the rule modules that none of ``sites`` touches."""
    covered: dict[str, list[Place]] = {}
    for site in sites:
        covered.setdefault(site.file, []).append(site.span((root / site.file).read_text()))
    found = []
    for file in rule_modules(root):
        source = (root / file).read_text()
        found += [
            Boundary(file=file, place=place, code=source[slice(*place)])
            for place in sorted(set(boundaries(file, source)))
            if not any(_touch(place, other) for other in covered.get(file, ()))
        ]
    return found


def is_of(site: Site, boundary: Boundary, root: Path) -> bool:
    """Whether ``site`` touches ``boundary``."""
    return site.file == boundary.file and _touch(site.span((root / site.file).read_text()), boundary.place)


def _touch(one: Place, other: Place) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _of_rules(file: str, tree: ast.Module) -> Iterator[ast.AST]:
    for part in tree.body:
        if getattr(part, "name", "") not in _NO_RULES.get(file, ()):
            yield from ast.walk(part)


def _is_boundary(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=ops):
            return any(isinstance(one, _ORDER) for one in ops)
        case ast.Call(func=function):
            return _name(function) in _SEARCHES
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            return any(_name(one).endswith("_ms") for one in (left, right))
    return False


def _defaults(node: ast.AST) -> Iterator[ast.expr]:
    """Of parameters and of fields, but None, which says that there is none."""
    match node:
        case ast.FunctionDef(args=arguments):
            given = [*arguments.defaults, *arguments.kw_defaults]
        case ast.ClassDef(body=body):
            given = [one.value for one in body if isinstance(one, ast.AnnAssign)]
        case _:
            return
    yield from (one for one in given if isinstance(one, ast.Constant) and one.value is not None)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _place(lines: list[str], node: ast.AST) -> Place:
    assert isinstance(node, ast.expr) and node.end_lineno and node.end_col_offset is not None
    return _index(lines, node.lineno, node.col_offset), _index(lines, node.end_lineno, node.end_col_offset)


def _index(lines: list[str], line: int, column: int) -> int:
    """``column`` counts bytes, as the parser does."""
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())
