"""The declaration of a stream as it is deployed at this moment, and whether the stream may run by it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from recount.core.errors import Terminal
from recount.core.fingerprint import Declared
from recount.core.settings import Settings

_LOOK_AGAIN_S = 600.0
"""A function that a declaration imports from elsewhere can change while the declaration's own files do not."""
TIMEOUT_S = 60.0


def deployed(settings: Settings, stream: str) -> Declared:
    """What the deployed code declares; imported in a process of its own, so that it is what lies there now."""
    said = _said(f"the deployed declaration of {stream}", stream, "--document", modules=settings.topologies)
    return Declared(document=json.loads(said))


def _said(what: str, *asked: str, modules: str) -> str:
    """The answer of ``recount fingerprint``."""
    command = [sys.executable, "-m", "recount.commands.meaning", *asked]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
    except subprocess.CalledProcessError as error:
        raise Terminal(
            f"{what} cannot be read",
            given=error.stderr.strip()[-1_000:],
            expected=f"streams that the modules {modules} declare",
            remedy="mend the deployed modules",
        ) from error


def require_admitted(settings: Settings, stream: str) -> None:
    """Raise ``OtherDeclaration`` where a driver with the deployed code would be refused: no launch can help."""
    from recount.declarations import DeclarationLog  # needs Delta, which a DAG file must do without

    DeclarationLog(settings.data, stream).require(deployed(settings, stream), None)


class DeployedFingerprint:
    """The fingerprint of the deployed declaration of a stream, asked for often.

    All streams of a process share what is known: dozens are watched by one triggerer.
    """

    def __init__(self, settings: Settings, stream: str) -> None:
        with _KNOWN_BUSY:
            self._known = _KNOWN.setdefault(settings.topologies, _Fingerprints(settings.topologies))
        self._stream = stream

    def now(self) -> str | None:
        """The fingerprint; None where the deployed code cannot be read, which says nothing about a running driver."""
        return self._known.now().get(self._stream)


class _Fingerprints:
    """The fingerprints of all streams of ``modules``, computed anew when the files have changed."""

    def __init__(self, modules: str) -> None:
        self._modules = modules
        self._busy = threading.Lock()
        self._seen: dict[str, int] = {}
        self._asked_s = float("-inf")
        self._last: dict[str, str] = {}

    def now(self) -> Mapping[str, str]:
        """By stream; none where the deployed code cannot be read."""
        with self._busy:
            files = changed_at(self._modules)
            now_s = time.monotonic()
            if files != self._seen or now_s - self._asked_s > _LOOK_AGAIN_S:
                self._seen, self._asked_s = files, now_s
                try:
                    self._last = json.loads(_said("the deployed declarations", modules=self._modules))
                except (Terminal, subprocess.TimeoutExpired):
                    self._last = {}
            return self._last


_KNOWN: dict[str, _Fingerprints] = {}
_KNOWN_BUSY = threading.Lock()


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
