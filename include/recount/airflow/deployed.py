"""The declaration of a stream as it is deployed at this moment, and whether the stream may run by it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

from recount.core.errors import Terminal
from recount.core.fingerprint import Declared
from recount.core.settings import Settings

_LOOK_AGAIN_S = 600.0
"""A function that a declaration imports from elsewhere can change while the declaration's own files do not."""
_TIMEOUT_S = 60.0


def deployed(settings: Settings, stream: str) -> Declared:
    """What the deployed code declares; imported in a process of its own, so that it is what lies there now."""
    command = [sys.executable, "-m", "recount.commands.meaning", stream, "--document"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True).stdout
    except subprocess.CalledProcessError as error:
        raise Terminal(
            f"the deployed declaration of {stream} cannot be read",
            given=error.stderr.strip()[-1_000:],
            expected=f"a stream of that name in the modules {settings.topologies}",
            remedy="mend the deployed modules",
        ) from error
    return Declared(document=json.loads(said))


def require_admitted(settings: Settings, stream: str) -> None:
    """Raise ``OtherDeclaration`` where a driver with the deployed code would be refused: no launch can help."""
    from recount.declarations import DeclarationLog  # needs Delta, which a DAG file must do without

    DeclarationLog(settings.data, stream).require(deployed(settings, stream), None)


class DeployedFingerprint:
    """The fingerprint of the deployed declaration, asked for often: it is computed anew when the files have changed."""

    def __init__(self, settings: Settings, stream: str) -> None:
        self._settings = settings
        self._stream = stream
        self._seen: dict[str, int] = {}
        self._asked_s = float("-inf")
        self._last: str | None = None

    def now(self) -> str | None:
        """The fingerprint; None where the deployed code cannot be read, which says nothing about a running driver."""
        files = _changed_at(self._settings.topologies)
        now_s = time.monotonic()
        if files != self._seen or now_s - self._asked_s > _LOOK_AGAIN_S:
            self._seen, self._asked_s = files, now_s
            try:
                self._last = deployed(self._settings, self._stream).fingerprint
            except (Terminal, subprocess.TimeoutExpired):
                self._last = None
        return self._last


def _changed_at(modules: str) -> dict[str, int]:
    """When each file of the declarations was last changed."""
    found: dict[str, int] = {}
    for name in modules.split(","):
        spec = importlib.util.find_spec(name.strip())
        folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
        files = [file for folder in folders for file in folder.rglob("*.py")]
        origin = [Path(spec.origin)] if spec and spec.origin and not folders else []
        found |= {str(file): file.stat().st_mtime_ns for file in (*files, *origin)}
    return found
