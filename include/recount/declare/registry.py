"""All declarations of a deployment: topologies, archives, topics, stream groups, run settings of its modules.

A process that has imported a module goes on with it when another one is deployed. So the modules are imported by a
process of their own, which hands over what they declare as bytes. The bytes are read here without the modules: in place
of functions and of objects of others are stand-ins, which have their names and cannot be called.
"""

import importlib
import io
import pickle
import pkgutil
import sys
import traceback
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, TypeGuard, TypeVar

from recount.declare import fingerprint
from recount.declare.groups import Archive, StreamGroup, require_apart
from recount.declare.run_settings import RunSettings, by_name
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.runtime.errors import RecountError, Terminal, require

DEFAULT_MODULES = "topologies"
Stream = Topology | Archive
_NOT_THE_USERS = sys.stdlib_module_names | {__name__.partition(".")[0]}
"""Packages whose lines say nothing about a declaration: Python's own, and Recount."""
Declared = TypeVar("Declared", Topic, Topology, Archive, StreamGroup)
_OURS = __name__.partition(".")[0]
_LIBRARIES = ("site-packages", "dist-packages")


def is_audited(stream: Stream) -> TypeGuard[Topology]:
    """Whether ``stream`` writes records that an audit can judge: an archive copies, and actions write none."""
    return isinstance(stream, Topology) and bool(stream.written)


def topics_read(stream: Stream) -> list[str]:
    return [source.topic.name for source in stream.sources] if isinstance(stream, Topology) else [stream.topic.name]


@dataclass(frozen=True, kw_only=True)
class Declarations:
    """Topologies, archives, topics and stream groups by name; ``modules`` names the module of each stream.

    ``run_settings`` are those of a stream or group, where it has any.
    """

    topologies: Mapping[str, Topology]
    topics: Mapping[str, Topic]
    archives: Mapping[str, Archive] = field(default_factory=dict)
    groups: Mapping[str, StreamGroup] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    run_settings: Mapping[str, RunSettings] = field(default_factory=dict)

    @property
    def streams(self) -> Mapping[str, Stream]:
        return {**self.topologies, **self.archives}

    @property
    def read_topics(self) -> Mapping[str, Sequence[str]]:
        return {name: topics_read(stream) for name, stream in self.streams.items()}

    @property
    def audited(self) -> Mapping[str, Topology]:
        """The topologies that write records."""
        return {name: one for name, one in self.topologies.items() if is_audited(one)}

    def stream(self, name: str) -> Stream:
        """The topology or archive called ``name``; raises ``Terminal`` naming those there are."""
        if name in self.archives:
            return self.archives[name]
        return self.topology(name)

    def group_of(self, stream: str) -> StreamGroup | None:
        """The group whose driver hosts ``stream``; None where it has a driver of its own."""
        return next((group for group in self.groups.values() if stream in group.members), None)

    def group(self, name: str) -> StreamGroup:
        """The group called ``name``; raises ``Terminal`` naming those there are."""
        if name not in self.groups:
            raise Terminal.of(
                "no-such-group",
                given=name,
                expected=f"one of {sorted(self.groups)}" if self.groups else "a declared group; there is none",
            )
        return self.groups[name]

    def topology(self, name: str) -> Topology:
        """The topology called ``name``; raises ``Terminal`` naming those there are."""
        if name in self.archives:
            raise Terminal.of("archive-is-no-topology", given=name, topologies=sorted(self.topologies))
        if name not in self.topologies:
            raise Terminal.of("no-such-stream", given=name, streams=sorted(self.streams))
        return self.topologies[name]


def declared(modules: str = DEFAULT_MODULES) -> Declarations:
    """Everything declared at the top level of ``modules`` (comma-separated names; packages with all they contain).

    Pure imports: no network, no Spark. Raises ``InvalidDeclaration`` where two declarations share a name,
    or a compacted source has no archive.
    """
    topologies: dict[str, Topology] = {}
    topics: dict[str, Topic] = {}
    archives: dict[str, Archive] = {}
    groups: dict[str, StreamGroup] = {}
    module_of: dict[str, str] = {}
    settings: dict[int, RunSettings] = {}
    for module in _modules(modules):
        for declaration in vars(module).values():
            if isinstance(declaration, Topology | Archive):
                module_of.setdefault(declaration.name, module.__name__)
            if isinstance(declaration, Topology):
                _add(topologies, declaration, "topology")
            elif isinstance(declaration, Archive):
                _add(archives, declaration, "archive")
                _add(topics, declaration.topic, "topic")
            elif isinstance(declaration, Topic):
                _add(topics, declaration, "topic")
            elif isinstance(declaration, StreamGroup):
                _add(groups, declaration, "group")
            elif isinstance(declaration, RunSettings):
                settings[id(declaration)] = declaration
    for topology in topologies.values():
        for node in (*topology.sources, *topology.written):
            _add(topics, node.topic, "topic")
    _require_apart_in_kafka(topologies.values(), topics.values())
    _require_one_writer(topologies.values())
    for archive in archives.values():
        require(
            archive.name not in topologies,
            "topology-named-like-an-archive",
            given=archive.name,
            name=archive.topic.name,
        )
        require(
            f"{archive.name}.backfill" not in archives,
            "archive-named-like-a-group",
            given=f"{archive.topic.name} and {archive.topic.name}.backfill",
        )
    require_apart(groups.values(), {**topologies, **archives})
    _require_archives(topologies.values(), {archive.topic.name for archive in archives.values()})
    return Declarations(
        topologies=topologies,
        topics=topics,
        archives=archives,
        groups=groups,
        modules=module_of,
        run_settings=by_name(settings.values(), {**topologies, **archives}, groups),
    )


def _modules(names: str) -> Iterator[ModuleType]:
    for name in names.split(","):
        module = imported(name.strip())
        yield module
        if hasattr(module, "__path__"):
            for found in pkgutil.walk_packages(module.__path__, f"{module.__name__}."):
                yield imported(found.name)


def _require_apart_in_kafka(topologies: Iterable[Topology], topics: Iterable[Topic]) -> None:
    """Kafka creates no topic beside one of which the name differs in ``.`` and ``_`` only: metrics would be the same.

    Topics of others are there already.
    """
    topologies, topics = list(topologies), list(topics)
    ours = {node.topic.name for topology in topologies for node in topology.written}
    ours |= {source.topic.dead_letter_name for topology in topologies for source in topology.sources}
    ours |= {topic.name for topic in topics if topic.owned}
    known: dict[str, str] = {}
    for name in (*(topic.name for topic in topics), *sorted(ours)):
        before = known.setdefault(name.replace(".", "_"), name)
        require(before == name or not {before, name} & ours, "topic-names-too-similar", given=f"{before} and {name}")


def _require_one_writer(topologies: Iterable[Topology]) -> None:
    """Each topic and table is written by one stream: the rows of another would be extra in its audit.

    Only dead letters of one source are written by all streams that read it: each of them says whose it is.
    """
    writers: dict[tuple[str, str], list[str]] = {}
    topologies = list(topologies)
    letters = {source.topic.dead_letter_name: one.name for one in topologies for source in one.sources}
    for topology in topologies:
        for node in topology.written:
            reader = letters.get(node.topic.name)
            require(
                reader is None,
                "topic-written-twice",
                given=f"written by {topology.name}, and by {reader} for its dead letters",
                topic=node.topic.name,
                topology=topology.name,
            )
            for output in (("topic", node.topic.name), ("table", node.table)):
                writers.setdefault(output, []).append(topology.name)
    for (what, name), streams in writers.items():
        require(
            len(streams) == 1,
            "written-by-two-streams",
            given=f"written by {' and '.join(streams)}",
            what=what,
            name=name,
        )


def _require_archives(topologies: Iterable[Topology], archived: Container[str]) -> None:
    """Compaction takes what a batch has read, so that no audit could recompute it from Kafka."""
    for topology in topologies:
        for source in topology.sources:
            topic = source.topic
            require(
                "compact" not in topic.cleanup_policy or topic.name in archived,
                "source-without-its-archive",
                given=f"a topic with cleanup_policy={topic.cleanup_policy!r} and no archive",
                topic=topic.name,
                topology=topology.name,
                variable=topic.name.replace("-", "_").replace(".", "_"),
            )


def _add(known: dict[str, Declared], declaration: Declared, kind: str) -> None:
    before = known.setdefault(declaration.name, declaration)
    require(before is declaration, "declared-twice", given=declaration.name, kind=kind)


def imported(name: str) -> ModuleType:
    """The module ``name``; raises ``Terminal`` with the place in it at which it, or a declaration, is wrong."""
    try:
        return importlib.import_module(name)
    except RecountError as error:
        error.place = error.place or _place_of(error)
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise Terminal.of("no-such-module", given=name) from None
        refused = Terminal.of("module-not-importable", given=f"{name}: {type(error).__name__}: {error}")
        refused.place = _place_of(error)
        raise refused from error


def _place_of(error: Exception) -> str | None:
    """The innermost line that is neither Python's own nor ours."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    places = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _NOT_THE_USERS
    ]
    return places[-1] if places else None


@dataclass(frozen=True, kw_only=True)
class Packed:
    """Declarations of modules with the ``fingerprints`` of their streams.

    ``files`` are those from which they were imported, libraries apart.
    """

    declarations: Declarations
    fingerprints: Mapping[str, str]
    files: tuple[str, ...]


class StandIn:
    """In place of the function or object ``name`` of a module that is not imported here."""

    def __init__(self, module: str, name: str) -> None:
        self.__module__, self.__name__, self.__qualname__ = module, name.rpartition(".")[2], name

    def __call__(self, *_: object, **__: object) -> Any:
        raise Terminal.of("function-not-here", given=f"{self.__module__}.{self.__qualname__}")


def packed(modules: str) -> bytes:
    """Import ``modules``; what they declare, for ``unpacked``."""
    before = set(sys.modules)
    declarations = declared(modules)
    found = (sys.modules[name] for name in set(sys.modules) - before if not name.startswith(f"{_OURS}."))
    files = sorted({str(module.__file__) for module in found if getattr(module, "__file__", None)})
    own = tuple(file for file in files if not _is_library(file))
    packing = io.BytesIO()
    fingerprints = {name: fingerprint.Declared.of(one).fingerprint for name, one in declarations.streams.items()}
    _Packing(packing).dump(Packed(declarations=declarations, fingerprints=fingerprints, files=own))
    return packing.getvalue()


def print_packed(modules: str) -> None:
    """Write what ``modules`` declare to standard output, without what they print while they are imported."""
    from recount.runtime.console import errors_reported

    with errors_reported("the deployed declarations"):
        said, sys.stdout = sys.stdout, sys.stderr
        said.buffer.write(packed(modules))


def unpacked(said: bytes) -> Packed:
    """The declarations that ``packed`` made bytes of; only for what a process of ours has said."""
    found: Packed = pickle.loads(said)  # noqa: S301 - see above
    return found


class _Packing(pickle.Pickler):
    def reducer_override(self, one: Any) -> Any:
        if isinstance(one, MappingProxyType):
            return MappingProxyType, (dict(one),)
        if isinstance(one, ModuleType):
            return StandIn, (one.__name__, one.__name__)
        if isinstance(one, FunctionType | MethodType | type):
            return NotImplemented if _is_found(one) else (StandIn, (str(one.__module__), one.__qualname__))
        return NotImplemented if _is_found(type(one)) else (StandIn, (type(one).__module__, type(one).__qualname__))


def _is_found(one: Any) -> bool:
    """Whether the reader has it by its name: Python's own, and ours where it is at the top of a module."""
    root = str(one.__module__).partition(".")[0]
    return root in {_OURS, *sys.stdlib_module_names} and "<" not in one.__qualname__ and not isinstance(one, MethodType)


def _is_library(file: str) -> bool:
    parts = Path(file).parts
    return any(name in parts for name in _LIBRARIES) or file.startswith(str(Path(pickle.__file__).parent))
