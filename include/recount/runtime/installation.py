"""Files of an installation beside the code: shipped files, extras, jars of Spark and the broker, secrets.

Shipped files are below ``recount/shipped`` in the wheel; in a checkout they are where a project of Recount has them.

>>> coordinates("spark")[0].rpartition(":")[0]
'org.apache.spark:spark-sql-kafka-0-10_2.13'

Reads refuse a pipe or device; a secret is written for its owner alone.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Literal
from xml.etree import ElementTree

from recount.runtime.errors import Terminal

_PACKAGE = Path(__file__).resolve().parents[1]
LIBRARIES = MappingProxyType(
    {
        "airflow": ("airflow", "asgiref", "grandalf", "itsdangerous", "pygal", "sqlalchemy"),
        "fab": ("flask_appbuilder",),
        "kubernetes": ("kubernetes",),
        "audit": ("great_expectations",),
        "serve": ("fastapi", "limits", "starlette", "uvicorn"),
        "registry": ("authlib", "avro", "fastavro", "grpc_tools", "protobuf"),
        "local": ("httpx",),
    }
)
"""By extra, the libraries that only it brings, as they are imported."""
JarSet = Literal["spark", "kafka"]
PACKAGES = "packages"
"""The value of RECOUNT_JARS that lets Spark fetch the jars itself: spark-submit's --packages."""
_NAMESPACE = {"pom": "http://maven.apache.org/POM/4.0.0"}


def shipped(name: str) -> Path:
    """The file or folder ``name``: ``spark_jobs``, ``expectations``, ``pom.xml``; ``Terminal`` where it is missing."""
    places = (_PACKAGE / "shipped" / name, _PACKAGE.parents[1] / name)
    for place in places:
        if place.exists():
            return place
    raise Terminal.of("shipped-file-missing", given=str(places[0]), name=name)


class MissingExtra(Terminal, ImportError):
    """A part of Recount was asked for whose libraries are not installed."""

    def __init__(self, extra: str, library: str) -> None:
        self.extra = extra
        super().__init__(
            f"the extra {extra!r} of recount is not installed",
            given=f"no library {library}",
            expected=f"the libraries of recount[{extra}]",
            remedy=f"pip install 'recount[{extra}]'",
        )


def require_extra(extra: str) -> None:
    """Raise ``MissingExtra`` unless every library of ``extra`` is installed; imports none of them."""
    for library in LIBRARIES[extra]:
        if find_spec(library) is None:
            raise MissingExtra(extra, library)


@contextmanager
def missing_extras_named() -> Iterator[None]:
    """Turn the failed import of a library of an extra into ``MissingExtra``; any other failure passes as it is."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        extra = next((name for name, libraries in LIBRARIES.items() if library in libraries), None)
        if extra is None:
            raise
        raise MissingExtra(extra, library) from error


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
    """The jars by RECOUNT_JARS, a folder or ``packages``: ``{"jars": …}`` or ``{"packages": …}``, with commas.

    Raises ``Terminal`` where the folder has no jars.
    """
    if setting == PACKAGES:
        return {"packages": ",".join(coordinates("spark"))}
    found = sorted(str(path) for path in Path(setting).glob("*.jar"))
    if not found:
        raise Terminal.of("spark-jars-missing", given=setting)
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


def bytes_of_file(path: Path) -> bytes:
    """The content of the file ``path``, or of the one it links to; raises ``OSError`` where that is no plain file.

    A pipe that nobody writes to would keep its reader for ever. It is opened first and looked at then, so that nobody
    can put another one in its place between the two.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner may read, from its first byte on; a reader finds the old one or the new."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)


def fault_of_mode(path: Path) -> str | None:
    """The fault in the mode of a file with secrets: everybody must not read it."""
    mode = path.stat().st_mode & 0o777
    return f"{path} can be read by everybody (mode {mode:04o}): chmod 600" if mode & 0o004 else None
