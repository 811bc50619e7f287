"""The declarations that are deployed at this moment, for the pages: the api-server has imported none of them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from recount.airflow.deployed import TIMEOUT_S, changed_at
from recount.core.errors import Terminal
from recount.core.packed_declarations import Packed, unpacked
from recount.core.registry import Declarations

_LOOK_AGAIN_S = 60.0
"""What a declaration reads while it is imported, a file of settings say, can change when no module does."""
_Stamp = Mapping[str, tuple[int, int, int]]


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """What is declared; ``problem`` says why it is not what is deployed, where that cannot be read."""

    declarations: Declarations
    problem: str | None = None


class DeployedDeclarations:
    """Those of ``modules``, imported by a process of its own whenever one of their files has changed.

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
        """What is deployed; raises ``Terminal`` where that has never been read."""
        with self._busy:
            if self._stamp is None or self._stamp != self._stamp_now():
                self._read()
            last, problem, age_s = self._last, self._problem, time.monotonic() - self._read_s
        if last is None:
            raise Terminal(
                "the deployed declarations cannot be read",
                given=problem,
                expected=f"streams that the modules {self._modules} declare",
                remedy="mend the deployed modules",
            )
        if age_s > _LOOK_AGAIN_S and not self._refreshing.is_set():
            self._refreshing.set()
            threading.Thread(target=self._refresh, name="deployed declarations", daemon=True).start()
        return Deployment(declarations=last.declarations, problem=problem)

    def _refresh(self) -> None:
        try:
            with self._busy:
                self._read()
        finally:
            self._refreshing.clear()

    def _read(self) -> None:
        """Import what is there now; what was known before stays where that fails, and the reason is kept."""
        command = [sys.executable, "-m", "recount.commands.packed_modules", self._modules]
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
    """What tells that a file is another one: a deployment may set its time back, or put another in its place."""
    found = {}
    for file in files:
        try:
            seen = Path(file).stat()
        except OSError:
            continue
        found[file] = seen.st_mtime_ns, seen.st_size, seen.st_ino
    return found


_KNOWN: dict[str, DeployedDeclarations] = {}
_KNOWN_BUSY = threading.Lock()


def deployment(modules: str) -> Deployment:
    """What is deployed now of ``modules``; all pages of this process share what is known."""
    with _KNOWN_BUSY:
        known = _KNOWN.setdefault(modules, DeployedDeclarations(modules))
    return known.now()
