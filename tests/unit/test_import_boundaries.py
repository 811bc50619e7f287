"""Dependencies point one way. The table below is the map of the house; an import that is not on it fails here."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from recount.core import language
from recount.local.project import Project

FOUNDATION = {
    *("core", "codec", "sessions", "kafka", "log_lines", "extras", "shipped", "jar_list", "printed_tables"),
    *("secret_file", "regular_files", "exit_codes"),
}

# room: the other rooms it may import. recompute and spark never meet: the one proves the other.
ROOMS = {
    "core": set(),
    "codec": {"core", "extras"},
    "commands": {"core", "exit_codes", "spark", "audit"},
    "new_project": {"core", "shipped"},
    "testing": {"core"},
    "extras": {"core"},
    "shipped": {"core"},
    "jar_list": {"core", "shipped"},
    "sessions": {"core", "jar_list", "cluster"},
    "cluster": {"core", "secret_file"},
    "secret_file": set(),
    "regular_files": set(),
    "log_lines": {"core"},
    "exit_codes": {"core", "log_lines"},
    "printed_tables": set(),
    # what another number of partitions does to a stream depends on what its last batch has read
    "kafka": {"core", "printed_tables", "secret_file", "proofs"},
    "proofs": {"core"},
    "released": {"core", "regular_files"},
    "process_identity": set(),
    "status_metrics": {"kafka"},
    "maintenance": {"core"},
    "declarations": {"core"},
    "erasures": {"core"},
    "aside_log": {"core"},
    "acceptance_log": {"core"},
    "spark": FOUNDATION
    | {"proofs", "released", "declarations", "erasures", "acceptance_log", "status_metrics", "aside_log"},
    "recompute": FOUNDATION,
    "audit": FOUNDATION
    | {"recompute", "proofs", "released", "declarations", "erasures", "acceptance_log", "aside_log"},
    "backfill": FOUNDATION | {"recompute", "audit", "declarations", "versions"},
    "versions": FOUNDATION | {"proofs", "declarations", "audit", "aside_log"},
    # it writes the tables of streams, of archives and of audits, each as their writer does
    "erasure": FOUNDATION
    | {"recompute", "audit", "spark", "proofs", "released", "declarations", "erasures", "versions"},
    "serve": FOUNDATION | {"audit", "proofs", "released", "status_metrics"},
    "grace": FOUNDATION | {"spark", "serve", "proofs", "released"},
    "web": {"core", "extras", "kafka", "audit", "serve", "proofs", "regular_files"},
    "airflow": FOUNDATION | {"audit", "serve", "grace", "web", "process_identity", "declarations", "maintenance"},
    "lens": FOUNDATION | {"proofs"},
    "panels": FOUNDATION | {"spark", "audit", "grace", "lens"},
    "local": FOUNDATION | {"audit", "process_identity", "cluster"},
    "play": FOUNDATION | {"audit", "serve", "grace", "local"},
    "topologies": {"core"},
    "dags": {"core", "airflow"},
    "spark_jobs": FOUNDATION | {"spark", "recompute", "audit", "backfill"},
    "cli": FOUNDATION
    | {
        "spark",
        "recompute",
        "audit",
        "backfill",
        "versions",
        "serve",
        "grace",
        "lens",
        "panels",
        "airflow",
        "local",
        "play",
        "maintenance",
        "erasure",
        "new_project",
    },
}

# What a room must not need: Airflow parses DAGs with it, a broker client without a JVM uses it.
BANNED_LIBRARIES = {
    "airflow": {"pyspark", "great_expectations", "polars", "pandas"},
    "dags": {"pyspark", "great_expectations", "polars", "pandas"},
    "kafka": {"pyspark", "airflow", "great_expectations"},
    "serve": {"pyspark", "airflow", "great_expectations"},
    "grace": {"pyspark", "airflow", "great_expectations"},
    "lens": {"pyspark", "airflow", "great_expectations"},
    "panels": {"pyspark", "airflow", "great_expectations"},
    "web": {"pyspark", "airflow", "great_expectations"},
    "recompute": {"airflow", "great_expectations"},
    "spark": {"airflow", "great_expectations"},
}


# What the recompute may share with the stream that it proves: declarations, that is, names, parameters and types.
SHARED_WITH_THE_RECOMPUTE = {
    "recount.core": {"expressions"},
    "recount.core.aggregates": {"Aggregate", "Fold"},
    "recount.core.changelogs": {"Suppress", "TableAggregate", "TableFilter", "ToTable"},
    "recount.core.errors": {"Terminal"},
    "recount.core.expression_types": {"columns_of", "type_of"},
    "recount.core.expressions": {"Call", "Column", "Expression", "Literal"},
    "recount.core.joins": {"Join", "StreamStreamJoin", "StreamTableJoin", "TableTableJoin"},
    "recount.core.nodes": {
        *("Filter", "SelectKey", "Sink", "Source", "WindowedAggregate", "WithFields"),
        *("Node", "Stateless", "KEY", "WINDOW_END", "WINDOW_START"),
    },
    "recount.core.own_columns": {"BEYOND", "IS_LATE", "IS_NULL", "ORIGIN", "RECORDS", "RESULT_TIME"},
    "recount.core.plain_values": {"PlainValue"},
    "recount.core.processing": {"Deduplicate", "InOrder", "Process"},
    "recount.core.registry_errors": {"VARIABLE", "RegistryRefused", "RegistryUnreachable"},
    "recount.core.schema": {"FieldType", "RecordSchema"},
    "recount.core.size_limits": {"Fits"},
    "recount.core.stateless": {
        *("FlatMap", "Foreach", "Merge", "Peek", "Repartition", "Select", "Through"),
        "MERGED_FROM",
    },
    "recount.core.tables": {"Tables"},
    "recount.core.topology": {"Topology", "Written"},
    "recount.core.windows": {
        *("GlobalWindow", "LastN", "SessionWindows", "SlidingWindows", "TimeWindows"),
        "ClosingWindows",
    },
    "recount.kafka.scanning": {"SCAN_OPTIONS"},
}

# What these declarations compute of themselves and the recompute may ask: shape and types, no rule of time or order.
ASKED_BY_THE_RECOMPUTE = {
    *("inputs", "key", "fields", "has_bounds", "type_over", "in_reasons"),
    *("nodes", "readers", "forks", "sources", "written"),
}

BUILDERS_AND_PATHS = {"recount.core.expressions", "recount.core.tables"}


def room_of(module: str) -> str | None:
    """The room a dotted module name lies in, or None for a library."""
    first, *rest = module.split(".")
    if first == "recount":
        return rest[0] if rest else None
    return first if first in ROOMS else None


def imports(source: str) -> Iterator[str]:
    """Every module name that ``source`` imports, at whatever depth it does so."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from recount import core` names a room only in its second half; a name of the language lies in core
            names = [alias.name for alias in node.names]
            rooms = ["recount.core" if name in language.__all__ else f"recount.{name}" for name in names]
            yield from rooms if node.module == "recount" else [node.module]


def faults(room: str, source: str) -> list[str]:
    """What ``source`` in ``room`` imports and must not."""
    found = []
    for module in imports(source):
        library = module.split(".")[0]
        target = room_of(module)
        if target is None:
            if library in BANNED_LIBRARIES.get(room, set()):
                found.append(f"{room} must do without {library}")
            if room == "core" and library not in sys.stdlib_module_names:
                found.append(f"core is standard library only, not {library}")
        elif target != room and target not in ROOMS[room]:
            found.append(f"{room} must not import {target}")
    return found


def files(root: Path) -> Iterator[tuple[str, Path]]:
    """Every module of the project with its room."""
    for file in sorted((root / "include" / "recount").rglob("*.py")):
        inside = file.relative_to(root / "include" / "recount")
        if inside.name != "__init__.py" or len(inside.parts) > 1:
            yield inside.parts[0].removesuffix(".py"), file
    for room, folder in (("topologies", "include/topologies"), ("dags", "dags"), ("spark_jobs", "spark_jobs")):
        yield from ((room, file) for file in sorted((root / folder).rglob("*.py")))


def test_no_import_crosses_a_boundary(project: Project) -> None:
    found = [
        f"{file.relative_to(project.root)}: {fault}"
        for room, file in files(project.root)
        for fault in faults(room, file.read_text())
    ]
    assert not found, "\n".join(found)


def test_every_module_lies_in_a_room_of_the_map(project: Project) -> None:
    assert {room for room, _ in files(project.root)} <= ROOMS.keys()


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
