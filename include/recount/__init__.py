"""Recount: streams you can audit. Declarations import their names from here: ``from recount import Topology, stream``.

``recount.core.language`` lists the names. ``import recount`` loads nothing else; the first of these names that is
used loads the language, which needs neither Spark nor Airflow. DAG files import ``recount_dags`` and ``audited`` from
``recount.airflow``; ``recount.testing`` has the unit-test driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recount.core.language import *  # noqa: F403 - __all__ there lists them


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module 'recount' has no attribute {name!r}")
    from recount.core import language

    if name not in (*language.__all__, "__all__"):
        raise AttributeError(f"module 'recount' has no name {name!r}; it has: {', '.join(language.__all__)}")
    return getattr(language, name)


def __dir__() -> list[str]:
    from recount.core import language

    return [*globals(), *language.__all__]
