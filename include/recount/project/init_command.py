"""``recount init``."""

import json
import keyword
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution, packages_distributions, version
from pathlib import Path
from shutil import copyfile
from typing import Annotated
from urllib.parse import urlsplit
from urllib.request import url2pathname

import typer
from jinja2 import Environment, PackageLoader, StrictUndefined

from recount.runtime.errors import Terminal, require
from recount.runtime.installation import shipped

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_FOLDERS = frozenset({"dags", "tests", "docker", "expectations", "spark_jobs", "kubernetes", "wheels"})
"""Folders of every project; its package is beside them."""
_RECOUNTS = frozenset({"recount", "airflow", "topologies"})
_SUFFIX = ".j2"
_PACKAGE = "package"
_COPIED = ("spark_jobs", "docker", "kubernetes")
_OWN = Path("docker/Dockerfile")
"""That of Recount's own project; a new one's is made by a template."""


def init(
    name: Annotated[str, typer.Argument(help="The project's name, and that of its folder.")],
    parent: Annotated[Path, typer.Option(help="Where the folder is made.")] = Path(),
) -> None:
    """Write a new project: one stream with its test, DAGs, expectations, a composition for docker, a Makefile."""
    require(
        _NAME.fullmatch(name) is not None and not _is_taken(name.replace("-", "_")), "project-name-unfit", given=name
    )
    root = parent / name
    if root.exists():
        raise Terminal.of("project-folder-taken", given=str(root))
    for place, content in list(project_files(name, name.replace("-", "_"))):
        file = root / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    wheel = installed_wheel()
    if wheel is None:
        print(f"wrote {root}; its requirements name Recount by a wheel that is not there yet, so first:")
        print(f"  cp {wheel_name()} {root}/wheels/      # make dist in a checkout of Recount builds it, in dist/")
        print(f"next: cd {root} && make test")
        return
    copyfile(wheel, root / "wheels" / wheel.name)
    print(f"wrote {root}, with {wheel.name}; next: cd {root} && make test")


def wheel_name() -> str:
    """The name of the wheel of this Recount in the requirements of a new project."""
    return f"recount-{version('recount')}-py3-none-any.whl"


def installed_wheel() -> Path | None:
    """The wheel that this Recount was installed from, or that its checkout has built; None where it is not there."""
    told = distribution("recount").read_text("direct_url.json")
    place = urlsplit(json.loads(told)["url"]) if told else None
    if place is None or place.scheme != "file":
        return None
    source = Path(url2pathname(place.path))
    wheel = source / "dist" / wheel_name() if source.is_dir() else source
    return wheel if wheel.name == wheel_name() and wheel.is_file() else None


def _is_taken(package: str) -> bool:
    """Whether a package of this name could not be imported, or would hide another one from what the project imports."""
    others = _FOLDERS | _RECOUNTS | sys.stdlib_module_names | packages_distributions().keys()
    return keyword.iskeyword(package) or package in others


def project_files(name: str, package: str) -> Iterator[tuple[Path, str]]:
    """The place of each file below the project's root, and its content."""
    known = {"name": name, "package": package, "version": version("recount")}
    environment = Environment(  # noqa: S701 - it writes no HTML
        loader=PackageLoader("recount.project"), undefined=StrictUndefined, keep_trailing_newline=True
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
            raise Terminal.of("shipped-file-changed", given=f"{before.strip()!r}, {text.count(before)} times")
        text = text.replace(before, after)
    return text
