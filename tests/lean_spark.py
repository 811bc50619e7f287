"""The Spark of the image, on this machine: what docker/unused_jars.txt takes out is not there.

Every test has it, so that a part which something needs after all is missed here and not in the image.
"""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pyspark

SPARK = Path(pyspark.__file__).parent
LIST = Path(__file__).parents[1] / "docker" / "unused_jars.txt"


def patterns() -> list[str]:
    """Those of the list, each of names below ``jars``."""
    return [line for line in LIST.read_text().splitlines() if not line.startswith("#")]


def is_unused(name: str) -> bool:
    """Whether the list takes out what has this name below ``jars``."""
    return any(fnmatch(name, pattern) for pattern in patterns())


def make_lean_spark(folder: Path) -> Path:
    """A SPARK_HOME below ``folder`` that leads to PySpark's own, without what the image has not."""
    home = folder / "spark"
    (home / "jars").mkdir(parents=True)
    for one in SPARK.iterdir():
        if one.name != "jars":
            (home / one.name).symlink_to(one)
    for one in (SPARK / "jars").iterdir():
        if not is_unused(one.name):
            (home / "jars" / one.name).symlink_to(one)
    return home
