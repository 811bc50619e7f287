"""The headers of a record that the client has read."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

from confluent_kafka import Message

_ask = methodcaller("headers")
"""Where the name of a header is no UTF-8, the client answers and leaves its error behind as well. Python finds such an
error in a plain ``message.headers()`` the first times only; once that code is fast, the error comes up wherever the
next function is called. In a call through this one it is always found."""


def record_headers(message: Message) -> list[tuple[str, str | bytes | None]]:
    """Those of ``message``, in their order; none where a name is no UTF-8, for then the client can read none."""
    try:
        found: Any = _ask(message)
    except (SystemError, UnicodeDecodeError):
        return []
    return list(found.items() if isinstance(found, dict) else found or ())
