"""What comes with Recount and is not Python that is imported: jobs, suites, the list of jars, the composition.

The wheel has it below ``recount/shipped``; in a checkout it lies where a project of Recount has it.
"""

from __future__ import annotations

from pathlib import Path

from recount.core.errors import Terminal

_PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """The file or folder ``name``: ``spark_jobs``, ``expectations``, ``pom.xml``; ``Terminal`` where it is missing."""
    places = (_PACKAGE / "shipped" / name, _PACKAGE.parents[1] / name)
    for place in places:
        if place.exists():
            return place
    raise Terminal(
        f"{name} is not where Recount was installed",
        given=str(places[0]),
        expected="the files of the wheel",
        remedy="install Recount anew: pip install --force-reinstall recount",
    )
