"""Declarations that are deployed at this moment, and whether a stream may run by its own.

The pages of the api-server read them here, for it has imported none of them.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from recount.declare.fingerprint import Declared
from recount.declare.registry import Declarations, Packed, unpacked
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings

TIMEOUT_S = 60.0
_PACK = "import sys; from recount.declare.registry import print_packed; print_packed(sys.argv[1])"
_LOOK_AGAIN_S = 60.0
"""What a declaration reads while it is imported, a file of settings say, can change when no module does."""
_Stamp = Mapping[str, tuple[int, int, int]]
_DEPLOYMENTS: dict[str, DeployedDeclarations] = {}
_DEPLOYMENTS_BUSY = threading.Lock()


def deployed(settings: Settings, stream: str) -> Declared:
    """Return what the deployed code declares; a process of its own imports it, so that it is what is there now."""
    command = [sys.executable, "-m", "recount.lifecycle.declaration_commands", stream, "--document"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
    except subprocess.CalledProcessError as error:
        raise Terminal.of(
            "deployed-declaration-unreadable",
            given=error.stderr.strip()[-1_000:],
            stream=stream,
            topologies=settings.topologies,
        ) from error
    return Declared(document=json.loads(said))


def require_admitted(settings: Settings, stream: str) -> None:
    """Raise ``OtherDeclaration`` where a driver with the deployed code would be refused: no launch can help."""
    from recount.tables.decisions import DeclarationLog

    DeclarationLog(settings.data, stream).require(deployed(settings, stream), None)


def fingerprint_now(settings: Settings, stream: str) -> str | None:
    """The fingerprint of the deployed declaration of ``stream``, asked for often.

    None where the deployed code cannot be read, which says nothing about a running driver.
    """
    try:
        found = deployment(settings.topologies)
    except Terminal:
        return None
    return found.fingerprints.get(stream) if found.problem is None else None


def changed_at(modules: str) -> dict[str, int]:
    """When each file of the declarations was last changed."""
    found: dict[str, int] = {}
    for name in modules.split(","):
        spec = importlib.util.find_spec(name.strip())
        folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
        files = [file for folder in folders for file in folder.rglob("*.py")]
        origin = [Path(spec.origin)] if spec and spec.origin and not folders else []
        found |= {str(file): file.stat().st_mtime_ns for file in (*files, *origin)}
    return found


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """The declarations, with their streams' fingerprints.

    ``problem`` says why they are not the deployed ones, where those cannot be read.
    """

    declarations: Declarations
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None


class DeployedDeclarations:
    """Declarations of ``modules``, imported by a process of its own whenever one of their files has changed.

    Older than a minute they are imported again beside, and the next page has them. For several threads.
    """

    def __init__(self, modules: str) -> None:
        self._modules = modules
        self._busy = threading.Lock()
        self._last: Packed | None = None
        self._stamp: tuple[object, object] | None = None
        self._problem: str | None = None
        self._read_s = float("-inf")
        self._refreshing = threading.Event()

    def now(self) -> Deployment:
        """Return what is deployed; raises ``Terminal`` where that has never been read."""
        with self._busy:
            if self._stamp is None or self._stamp != self._stamp_now():
                self._read()
            last, problem, age_s = self._last, self._problem, time.monotonic() - self._read_s
        if last is None:
            raise Terminal.of("deployed-declarations-unreadable", given=problem, modules=self._modules)
        if age_s > _LOOK_AGAIN_S and not self._refreshing.is_set():
            self._refreshing.set()
            threading.Thread(target=self._refresh, name="deployed declarations", daemon=True).start()
        return Deployment(declarations=last.declarations, fingerprints=last.fingerprints, problem=problem)

    def _refresh(self) -> None:
        try:
            with self._busy:
                self._read()
        finally:
            self._refreshing.clear()

    def _read(self) -> None:
        """Import what is there now; what was known before stays where that fails, and the reason is kept."""
        command = [sys.executable, "-c", _PACK, self._modules]
        before = changed_at(self._modules)
        try:
            said = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=True).stdout
            self._last, self._problem = unpacked(said), None
        except subprocess.CalledProcessError as error:
            self._problem = error.stderr.decode(errors="replace").strip()[-1_000:]
        except subprocess.TimeoutExpired:
            self._problem = f"importing {self._modules} took longer than {TIMEOUT_S:.0f} s"
        # changes during the import are seen at the next look
        self._stamp = before, _stamps(self._last.files if self._last else ())
        self._read_s = time.monotonic()

    def _stamp_now(self) -> tuple[object, object]:
        return changed_at(self._modules), _stamps(self._last.files if self._last else ())


def _stamps(files: Iterable[str]) -> _Stamp:
    """Return stamps that differ where a file is another one: a deployment may set its time back, or replace it."""
    found = {}
    for file in files:
        try:
            seen = Path(file).stat()
        except OSError:
            continue
        found[file] = seen.st_mtime_ns, seen.st_size, seen.st_ino
    return found


def deployment(modules: str) -> Deployment:
    """Return what is deployed now of ``modules``; all pages of this process share what is known."""
    with _DEPLOYMENTS_BUSY:
        known = _DEPLOYMENTS.setdefault(modules, DeployedDeclarations(modules))
    return known.now()
