"""Which stream a line of a driver's log is about, where one driver runs several."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

_STREAM: ContextVar[str] = ContextVar("stream", default="-")
LOG_FORMAT = "%(asctime)s %(levelname)s [%(stream)s] %(name)s: %(message)s"

Given = ParamSpec("Given")
Result = TypeVar("Result")


@contextmanager
def about(stream: str) -> Iterator[None]:
    """What this thread logs meanwhile is about ``stream``."""
    before = _STREAM.set(stream)
    try:
        yield
    finally:
        _STREAM.reset(before)


def told_of(stream: str, call: Callable[Given, Result]) -> Callable[Given, Result]:
    """``call``, in whatever thread, with its logs about ``stream``."""

    @wraps(call)
    def told(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with about(stream):
            return call(*args, **kwargs)

    return told


def tell_streams(handler: logging.Handler) -> None:
    """Let ``handler`` write ``LOG_FORMAT``."""

    def named(record: logging.LogRecord) -> bool:
        record.stream = _STREAM.get()
        return True

    handler.addFilter(named)
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
