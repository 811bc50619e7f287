"""The files of a new project: those of the templates, and those that come with Recount and are the same in each."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from recount.core.errors import Terminal
from recount.shipped import shipped

_SUFFIX = ".j2"
_PACKAGE = "package"
_COPIED = ("spark_jobs", "docker")
_OWN = Path("docker/Dockerfile")
"""That of Recount's own project; a new one's is made by a template."""
_COMPOSITION = "docker-compose.yml"


def project_files(name: str, package: str) -> Iterator[tuple[Path, str]]:
    """The place of each file below the project's root, and its content."""
    known = {"name": name, "package": package, "version": version("recount")}
    environment = Environment(  # noqa: S701 - it writes no HTML
        loader=PackageLoader("recount.new_project"), undefined=StrictUndefined, keep_trailing_newline=True
    )
    for template in environment.list_templates():
        place = Path(template.removesuffix(_SUFFIX))
        parts = [package if part == _PACKAGE else part for part in place.parts]
        yield Path(*parts), environment.get_template(template).render(known)
    for folder in _COPIED:
        for file in sorted(one for one in shipped(folder).iterdir() if one.is_file()):
            place = Path(folder) / file.name
            if place != _OWN:
                yield place, file.read_text("utf-8")
    yield Path(_COMPOSITION), composition(shipped(_COMPOSITION).read_text("utf-8"), name, package)


def composition(text: str, name: str, package: str) -> str:
    """``text``, which composes Recount's own project, for the project ``name``."""
    for before, after in (
        ("\nname: recount\n", f"\nname: {name}\n"),
        ("\n  image: recount\n", f"\n  image: {name}\n"),
        ("  RECOUNT_TOPOLOGIES: topologies\n", f"  RECOUNT_TOPOLOGIES: {package}.topologies\n"),
        (" --route stats=product-revenue", ""),
    ):
        if text.count(before) != 1:
            raise Terminal(
                "the composition that comes with Recount is not the one that init knows",
                given=f"{before.strip()!r}, {text.count(before)} times",
                expected="once",
                remedy="install Recount anew, or report it",
            )
        text = text.replace(before, after)
    return text
