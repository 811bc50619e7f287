"""The files of a new project: those of the templates, and those that come with Recount and are the same in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from recount.core.errors import Terminal
from recount.shipped import shipped

_SUFFIX = ".j2"
_PACKAGE = "package"
_COPIED = ("spark_jobs", "docker", "kubernetes")
_OWN = Path("docker/Dockerfile")
"""That of Recount's own project; a new one's is made by a template."""


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
    changes = _changes(name, package)
    for folder in _COPIED:
        for file in sorted(one for one in shipped(folder).iterdir() if one.is_file()):
            place = Path(folder) / file.name
            if place != _OWN:
                yield place, adapted(file.read_text("utf-8"), changes.pop(str(place), ()))
    for name_of_file, words in changes.items():
        yield Path(name_of_file), adapted(shipped(name_of_file).read_text("utf-8"), words)


Words = Sequence[tuple[str, str]]
"""What is written where something else stands in a file of Recount's own project."""


def _changes(name: str, package: str) -> dict[str, Words]:
    """By place."""
    modules = f"{package}.topologies"
    image = ("registry.example/recount", f"registry.example/{name}")
    return {
        "kubernetes/settings.env": [("RECOUNT_TOPOLOGIES=topologies\n", f"RECOUNT_TOPOLOGIES={modules}\n")],
        "kubernetes/spark-defaults.conf": [image],
        "kubernetes/kustomization.yaml": [image],
        "docker-compose.yml": [
            ("\nname: recount\n", f"\nname: {name}\n"),
            ("\n  image: recount\n", f"\n  image: {name}\n"),
            ("  RECOUNT_TOPOLOGIES: topologies\n", f"  RECOUNT_TOPOLOGIES: {modules}\n"),
            (" --route stats=product-revenue", ""),
        ],
    }


def adapted(text: str, words: Words) -> str:
    """``text`` with other words; each must stand there once."""
    for before, after in words:
        if text.count(before) != 1:
            raise Terminal(
                "a file that comes with Recount is not the one that init knows",
                given=f"{before.strip()!r}, {text.count(before)} times",
                expected="once",
                remedy="install Recount anew, or report it",
            )
        text = text.replace(before, after)
    return text
