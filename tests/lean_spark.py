"""The Spark of the image, on this machine: what docker/unused_jars.txt takes out is not there.

Every test has it, so that a part which something needs after all is missed here and not in the image. All runs share
one, and ``python -m tests.lean_spark`` makes the archive of its classes, with which each of their JVMs starts faster.
"""

from __future__ import annotations

import os
import shutil
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp

import pyspark

from recount.profile.home import Project

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


def lean_spark(cache: Path) -> Path:
    """The one in ``cache`` of the installed PySpark and the list of today; made if it is not there."""
    jars = sorted(one.name for one in (SPARK / "jars").iterdir())
    told = sha256("\n".join([str(SPARK), *patterns(), *jars]).encode()).hexdigest()
    home = cache / f"lean-spark-{told[:8]}" / "spark"
    if not home.exists():
        cache.mkdir(parents=True, exist_ok=True)
        made = Path(mkdtemp(dir=cache, prefix=".lean-spark-"))
        made.chmod(0o755)
        make_lean_spark(made)
        try:
            made.rename(home.parent)
        except OSError:  # another run has made it meanwhile
            shutil.rmtree(made)
    return home


if __name__ == "__main__":
    from recount.profile.class_archive import make_archive

    project = Project.containing(Path(__file__).parent)
    os.environ["SPARK_HOME"] = str(lean_spark(project.jars.parent))
    make_archive(project.spark_jars)
