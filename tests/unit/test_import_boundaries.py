"""What the recompute shares with the stream that it proves. Which folder imports which: ``[tool.importlinter]``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from recount.profile.home import Project

# What the recompute may share with the stream that it proves: declarations, that is, names, parameters and types.
SHARED_WITH_THE_RECOMPUTE = {
    "recount.declare": {"expressions"},
    "recount.declare.aggregates": {"Aggregate", "Fold"},
    "recount.declare.operators.tables": {"Suppress", "TableAggregate", "TableFilter", "ToTable"},
    "recount.declare.expression_types": {"columns_of", "type_of"},
    "recount.declare.expressions": {"Column", "Expression"},
    "recount.declare.operators.joins": {"Join", "StreamStreamJoin", "StreamTableJoin", "TableTableJoin"},
    "recount.declare.operators.nodes": {
        *("Filter", "SelectKey", "Sink", "Source", "WindowedAggregate", "WithFields"),
        *("Node", "Stateless", "KEY", "WINDOW_END", "WINDOW_START"),
    },
    "recount.declare.columns": {"IS_NULL", "ORIGIN", "RESULT_TIME"},
    "recount.declare.plain_values": {"PlainValue"},
    "recount.declare.operators.processing": {"Deduplicate", "InOrder", "Process"},
    "recount.runtime.errors": {"VARIABLE", "Terminal", "RegistryRefused", "RegistryUnreachable"},
    "recount.declare.schema": {"FieldType", "RecordSchema"},
    "recount.declare.output": {"Fits"},
    "recount.declare.operators.stateless": {
        *("FlatMap", "Foreach", "Merge", "Peek", "Repartition", "Select", "Through"),
        "MERGED_FROM",
    },
    "recount.tables.places": {"Tables"},
    "recount.declare.topology": {"Topology", "Written"},
    "recount.declare.windows": {
        *("GlobalWindow", "LastN", "SessionWindows", "SlidingWindows", "TimeWindows"),
        "ClosingWindows",
    },
    "recount.kafka.connection": {"SCAN_OPTIONS"},
    # files of Protobuf by Google's compiler; what reads messages is of each side's own
    "recount.runtime.protobuf_files": {"FILE", "Files", "NoProtobufFile", "descriptors"},
    "recount.runtime.installation": {"require_extra"},
}

# What these declarations compute of themselves and the recompute may ask: shape and types, no rule of time or order.
ASKED_BY_THE_RECOMPUTE = {
    *("inputs", "key", "fields", "has_bounds", "type_over", "in_reasons"),
    *("nodes", "readers", "forks", "sources", "written"),
}

BUILDERS_AND_PATHS = {"recount.declare.expressions", "recount.tables.places"}


def recompute_files(root: Path) -> Iterator[tuple[str, ast.Module]]:
    """Every module of the recompute."""
    for file in sorted((root / "include" / "recount" / "recompute").rglob("*.py")):
        yield str(file.relative_to(root)), ast.parse(file.read_text())


def shared_by(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What ``tree`` imports of the project beyond the recompute itself: module and name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [(node.module or "", alias.name) for alias in node.names]
        else:
            continue
        rooms = [(module.split("."), (module, name)) for module, name in found]
        yield from (one for path, one in rooms if path[0] == "recount" and path[1:2] != ["recompute"])


def computed_members(root: Path) -> set[str]:
    """The methods and properties of the declarations that the recompute shares."""
    found: set[str] = set()
    for module in SHARED_WITH_THE_RECOMPUTE.keys() - BUILDERS_AND_PATHS:
        file = root / "include" / Path(*module.split(".")).with_suffix(".py")
        if not file.exists():
            continue
        classes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef)]
        methods = [one for node in classes for one in node.body if isinstance(one, ast.FunctionDef)]
        found |= {one.name for one in methods if "classmethod" not in map(ast.unparse, one.decorator_list)}
    return {name for name in found if not name.startswith("_")}


def rules_asked(tree: ast.Module, members: set[str]) -> set[str]:
    """Which of ``members`` the recompute's module reads from anything but an object of its own."""
    read = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {node.attr for node in read if ast.unparse(node.value) != "self"} & members


def test_the_recompute_shares_with_the_stream_what_is_listed_and_nothing_else(project: Project) -> None:
    found = {(module, name) for _, tree in recompute_files(project.root) for module, name in shared_by(tree)}
    listed = {(module, name) for module, names in SHARED_WITH_THE_RECOMPUTE.items() for name in names}
    assert found == listed, f"not listed: {sorted(found - listed)}; not used: {sorted(listed - found)}"


def test_the_recompute_asks_a_declaration_for_its_shape_and_for_no_rule(project: Project) -> None:
    members = computed_members(project.root) - ASKED_BY_THE_RECOMPUTE
    assert {"closes_ms", "is_closed", "starts", "continues", "left_of", "right_of", "delay_ms"} <= members
    found = {
        file: sorted(asked) for file, tree in recompute_files(project.root) if (asked := rules_asked(tree, members))
    }
    assert not found
