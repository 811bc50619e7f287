"""``recount init``."""

from __future__ import annotations

import json
import keyword
import re
import sys
from importlib.metadata import distribution, packages_distributions, version
from pathlib import Path
from shutil import copyfile
from typing import Annotated
from urllib.parse import urlsplit
from urllib.request import url2pathname

import typer

from recount.core.errors import Terminal, require
from recount.new_project.project_files import project_files

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_FOLDERS = frozenset({"dags", "tests", "docker", "expectations", "spark_jobs", "kubernetes", "wheels"})
"""Of every project: its package lies beside them."""
_RECOUNTS = frozenset({"recount", "airflow", "topologies"})


def init(
    name: Annotated[str, typer.Argument(help="The project's name, and that of its folder.")],
    parent: Annotated[Path, typer.Option(help="Where the folder is made.")] = Path(),
) -> None:
    """Write a new project: one stream with its test, DAGs, expectations, a composition for docker, a Makefile."""
    require(
        _NAME.fullmatch(name) is not None and not _is_taken(name.replace("-", "_")),
        "project name",
        given=name,
        expected="lower-case words joined by '-', which begin with a letter and name no other package",
        remedy="name it like 'my-project'",
    )
    root = parent / name
    if root.exists():
        raise Terminal(
            "the project's folder is there already",
            given=str(root),
            expected="a name that is free",
            remedy="take another name or --parent; nothing was written",
        )
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
    """What the requirements of a new project call the wheel of this Recount."""
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
