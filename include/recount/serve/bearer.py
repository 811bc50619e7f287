"""Who may ask over HTTP: whoever has the token. It comes from a file or the environment, never from a command line."""

from __future__ import annotations

import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from recount.core.errors import Terminal
from recount.core.settings import TOKEN_VARIABLE
from recount.serve.refusals import refusal

_TOKEN = re.compile(r"[\x21-\x7e]{16,512}")
_MAKE_ONE = "(umask 077; python -c 'import secrets; print(secrets.token_urlsafe(32))' > FILE)"


def token_of(file: Path | None, environ: Mapping[str, str]) -> str:
    """The token in ``file`` (None: in the environment), without white space around it; raises ``Terminal``."""
    if file is None and TOKEN_VARIABLE not in environ:
        raise Terminal(
            "no token: who may ask?",
            expected=f"--token-file FILE, or the token in {TOKEN_VARIABLE}",
            remedy=f"make one: {_MAKE_ONE}",
        )
    token = (environ[TOKEN_VARIABLE] if file is None else _read(file)).strip()
    if not _TOKEN.fullmatch(token):
        raise Terminal(
            "a token that is none",
            given=f"{len(token)} characters in {file or TOKEN_VARIABLE}",
            expected="16 to 512 printable characters of ASCII without spaces",
            remedy=f"make one: {_MAKE_ONE}",
        )
    return token


def _read(file: Path) -> str:
    try:
        mode, text = stat.S_IMODE(file.stat().st_mode), file.read_text(errors="replace")
    except OSError as error:
        raise Terminal(
            "the token cannot be read",
            given=f"{file}: {error.strerror}",
            expected="a file with the token in it",
            remedy=f"make one: {_MAKE_ONE}",
        ) from error
    if mode & 0o077:
        raise Terminal(
            "others can read the token",
            given=f"{file}, mode {mode:o}",
            expected="a file that only its owner can read",
            remedy=f"chmod 600 {file}",
        )
    return text


class RequireToken:
    """Hands on what comes with the token, and answers anything else with 401, whatever its path is."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_known(scope):
            await refusal(
                401,
                Terminal(
                    "who asks?",
                    expected="the header Authorization: Bearer TOKEN, with the token that `recount serve` was given",
                    remedy="curl -H @FILE, where FILE has that header",
                ),
            )(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(b" ")
        return scheme.lower() == b"bearer" and secrets.compare_digest(token.strip(), self._expected)
