"""Errors as HTTP says them: 400 for a question that means nothing, 503 for what may go by, 409 for what does not."""

from __future__ import annotations

import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from recount.core.errors import RecountError, Terminal, Transient
from recount.core.instants import NoTime
from recount.serve.asked_sink import BadQuestion

ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"type": ["string", "null"]} for name in ("error", "given", "expected", "remedy")},
    "required": ["error", "given", "expected", "remedy"],
}
_KNOWN_TO_HTTP = {
    404: ("no such path", "a path of /openapi.json", "GET /streams lists the streams and their sinks"),
    405: ("no such method", "GET", "ask with GET"),
}


def refusal(status: int, error: RecountError, *, retry_after_s: int = 1) -> Response:
    """``error`` as a response; ``retry_after_s`` is told where asking again can help."""
    said = {
        "error": error.what,
        "given": None if error.given is None else str(error.given),
        "expected": error.expected or None,
        "remedy": error.remedy or None,
    }
    again = {"Retry-After": str(retry_after_s)}
    headers = {401: {"WWW-Authenticate": "Bearer"}, 429: again, 503: again}.get(status)
    return Response(json.dumps(said), status, headers, "application/json")


def of_error(_: Request, error: Exception) -> Response:
    """The response to an error of ours."""
    assert isinstance(error, RecountError)
    is_bad = isinstance(error, BadQuestion | NoTime)
    return refusal(400 if is_bad else 503 if isinstance(error, Transient) else 409, error)


def of_http(request: Request, error: Exception) -> Response:
    """The response to what the router refuses."""
    assert isinstance(error, HTTPException)
    what, expected, remedy = _KNOWN_TO_HTTP.get(error.status_code, (str(error.detail), "", ""))
    given = f"{request.method} {request.url.path}"[:200]
    return refusal(error.status_code, Terminal(what, given=given, expected=expected, remedy=remedy))
