"""The jars of Spark and of the broker, as pom.xml lists them and as they are on this machine.

>>> coordinates("spark")[0].rpartition(":")[0]
'org.apache.spark:spark-sql-kafka-0-10_2.13'
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from recount.core.errors import Terminal
from recount.shipped import shipped

JarSet = Literal["spark", "kafka"]
PACKAGES = "packages"
"""The value of RECOUNT_JARS that lets Spark fetch the jars itself: spark-submit's --packages."""
_NAMESPACE = {"pom": "http://maven.apache.org/POM/4.0.0"}


def coordinates(name: JarSet) -> list[str]:
    """``group:artifact:version`` of every jar of a set, in the order of the list."""
    root = ElementTree.parse(shipped("pom.xml")).getroot()  # noqa: S314 - it came with us
    found = root.find("pom:properties", _NAMESPACE)
    values = {} if found is None else {one.tag.partition("}")[2]: one.text or "" for one in found}
    for profile in root.iterfind("pom:profiles/pom:profile", _NAMESPACE):
        if profile.findtext("pom:id", namespaces=_NAMESPACE) == name:
            places = profile.iterfind("pom:dependencies/pom:dependency", _NAMESPACE)
            parts = ("groupId", "artifactId", "version")
            return [":".join(_part(place, part, values) for part in parts) for place in places]
    raise AssertionError(name)


def spark_jars(setting: str) -> dict[str, str]:
    """What RECOUNT_JARS, a folder or ``packages``, comes to: ``{"jars": …}`` or ``{"packages": …}``, with commas.

    Raises ``Terminal`` where the folder has no jars.
    """
    if setting == PACKAGES:
        return {"packages": ",".join(coordinates("spark"))}
    found = sorted(str(path) for path in Path(setting).glob("*.jar"))
    if not found:
        raise Terminal(
            "no Spark jars",
            given=setting,
            expected="a folder with the Delta and Kafka jars",
            remedy="run: recount jars; or set RECOUNT_JARS=packages, and Spark fetches them itself",
        )
    return {"jars": ",".join(found)}


def class_archive(jars: Path) -> Path:
    """The archive of Spark's classes in the folder of ``jars``: each SPARK_HOME has its own."""
    home = os.environ.get("SPARK_HOME")
    return jars / (f"classes-{sha256(home.encode()).hexdigest()[:8]}.jsa" if home else "classes.jsa")


def shared_classes(setting: str) -> str:
    """The options by which a JVM maps Spark's classes from the archive in the folder of jars; none without an archive.

    A JVM that cannot use it, one of another version for instance, loads the classes itself and says nothing.
    """
    archive = class_archive(Path(setting))
    return f'"-XX:SharedArchiveFile={archive}" -Xlog:cds=off -Xlog:cds+dynamic=off' if archive.is_file() else ""


def _part(place: ElementTree.Element, part: str, values: dict[str, str]) -> str:
    text = place.findtext(f"pom:{part}", default="", namespaces=_NAMESPACE)
    return values[text[2:-1]] if text.startswith("${") else text
