"""Files of Protobuf as descriptors, by Google's compiler.

The stream and the recompute read messages by libraries of their own. What a file says is no rule of either: both have
it from the compiler that defines the language.
"""

from __future__ import annotations

import re
import subprocess
import sys
from base64 import b64decode
from functools import lru_cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from pkgutil import walk_packages
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from recount.runtime.installation import require_extra

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

Files = tuple[tuple[str, str], ...]
"""Names and contents: of all that a file imports, and of the file itself, which comes last and is called ``FILE``.

A content is a text, or a ``FileDescriptorProto`` in base64: Confluent's client for Python registers descriptors, its
other clients texts.
"""
FILE = "writer.proto"
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_DECIMAL = {
    "confluent/type/decimal.proto": """
        syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
    "confluent/types/decimal.proto": 'syntax = "proto3"; import public "confluent/type/decimal.proto";',
}
"""Where Confluent's clients have it, and where they had it: no version has both."""
_LONGEST_NAME, _MOST_S = 255, 60
_SAID = re.compile(r"^(?!WARNING: |[IW][0-9]{4} |.*: warning: )\S.*$", re.MULTILINE)
"""A line of what the compiler says, but for warnings."""


class NoProtobufFile(Exception):
    """A content that is no file, or one that imports what the registry has not."""


def descriptors(files: Files) -> tuple[bytes, ...]:
    """The last of ``files`` as a serialised ``FileDescriptorProto``, behind those of all that it imports.

    Files of ``google/protobuf``, ``google/type`` and ``confluent`` need not be given. Raises ``NoProtobufFile``.
    """
    found = _described(files)
    if isinstance(found, str):
        raise NoProtobufFile(found)
    return found


@lru_cache(maxsize=256)
def _described(files: Files) -> tuple[bytes, ...] | str:
    """The descriptors, or why there are none: the compiler is asked once in a process."""
    require_extra("registry")
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.message import DecodeError

    written = {**_DECIMAL, **{name: content for name, content in files if not _BASE64.fullmatch(content)}}
    given = {file.name: file for file in _of_confluent()}
    try:
        for name, content in files:
            if written.get(name) != content:
                file = FileDescriptorProto.FromString(b64decode(content))
                file.name = name
                given[name] = file
                written.pop(name, None)
        with TemporaryDirectory(prefix="recount-protobuf-") as folder:
            known = Path(folder, "known.bin")
            known.write_bytes(FileDescriptorSet(file=given.values()).SerializeToString())
            for name, content in written.items():
                _place_in(Path(folder, "files"), name).write_text(content)
            found = FileDescriptorSet.FromString(_compiled(Path(folder), known))
    except (DecodeError, ValueError) as error:
        return f"it is no file of Protobuf: {' '.join(str(error).split())}"
    return tuple(file.SerializeToString() for file in found.file)


def _place_in(folder: Path, name: str) -> Path:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or max(map(len, name.encode().split(b"/"))) > _LONGEST_NAME:
        raise ValueError(f"{name} is no name of a file")
    place = folder / pure
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _compiled(folder: Path, known: Path) -> bytes:
    """A set of descriptors; raises ``ValueError`` with what the compiler says."""
    files, made = folder / "files", folder / "made.bin"
    files.mkdir(exist_ok=True)
    of_google = Path(str(import_module("google.type.date_pb2").__file__)).parents[2]
    paths = [f"-I{files}", f"-I{of_google}"]
    command = [sys.executable, "-m", "grpc_tools.protoc", *paths, f"--descriptor_set_in={known}", "--include_imports"]
    ran = subprocess.run(
        [*command, f"--descriptor_set_out={made}", FILE],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_MOST_S,
        check=False,
    )
    said = ran.stderr.decode(errors="replace")
    if ran.returncode == 1 and "Traceback" not in said:
        raise ValueError("; ".join(_SAID.findall(said))[:400])
    ran.check_returncode()  # not the file is wrong
    return made.read_bytes()


def _of_confluent() -> list[FileDescriptorProto]:
    """The other files of ``confluent``, as the installed client has them."""
    import confluent_kafka.schema_registry.confluent as confluent
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    modules = [one.name for one in walk_packages(confluent.__path__, f"{confluent.__name__}.")]
    files = [import_module(name).DESCRIPTOR for name in modules if name.endswith("_pb2")]
    return [FileDescriptorProto.FromString(one.serialized_pb) for one in files if one.name not in _DECIMAL]
