"""Recount: streams you can audit. Declarations import their names from here: ``from recount import Topology, stream``.

``recount.declare.language`` lists the names. ``import recount`` loads nothing else; the first of these names that is
used loads the language, which needs neither Spark nor Airflow. DAG files import ``recount_dags`` and ``audited`` from
``recount.airflow``; ``recount.testing`` has the unit-test driver.
"""

import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recount.declare.language import *  # noqa: F403 - __all__ there lists them


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module 'recount' has no attribute {name!r}")
    from recount.declare import language

    if name not in (*language.__all__, "__all__"):
        raise AttributeError(f"module 'recount' has no name {name!r}; it has: {', '.join(language.__all__)}")
    return getattr(language, name)


def __dir__() -> list[str]:
    from recount.declare import language

    return [*globals(), *language.__all__]


_INSTEAD = {
    "recount.core": "recount",
    "recount.airflow.dags": "recount.airflow",
    "recount.spark": "recount.jobs",
    "recount.audit.commands": "recount.jobs",
    "recount.backfill.commands": "recount.jobs",
}
"""Modules from which projects of an earlier release import: in declarations, DAG files and ``spark_jobs``."""


class _Moved(MetaPathFinder):
    """Says from where a name is imported that an earlier release had in a module which is no more."""

    def find_spec(self, fullname: str, *_: object) -> None:
        """Raise ``ModuleNotFoundError`` for such a module; asked only when nobody else has found it."""
        instead = _INSTEAD.get(fullname)
        if instead is not None:
            raise ModuleNotFoundError(
                f"there is no {fullname} any more; write: from {instead} import NAME", name=fullname
            )


sys.meta_path.append(_Moved())
