"""Log lines of a process of Recount: text, or JSON objects.

Both say which stream a line is about where a process has several. Lines of JSON have more of it as fields, see
``about``: ``stream``, ``lease_epoch``, ``batch``, ``audit``. They are named as Spark names the fields of its own
lines: ``ts``, ``level``, ``logger``, ``msg``.
"""

import json
import logging
import sys
import threading
from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from structlog import contextvars, processors, stdlib

from recount.runtime.settings import LogFormat

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TEXT_OF_STREAMS = "%(asctime)s %(levelname)s [%(stream)s] %(name)s: %(message)s"
_LOG = logging.getLogger("recount")

Given = ParamSpec("Given")
Result = TypeVar("Result")


def about(**fields: str | int | None) -> AbstractContextManager[None]:
    """Mark the lines that this thread logs meanwhile with a ``stream``, a ``batch`` and the like."""
    return contextvars.bound_contextvars(**{name: one for name, one in fields.items() if one is not None})


def told_of(call: Callable[Given, Result], **fields: str | int | None) -> Callable[Given, Result]:
    """``call``, in whatever thread, with its logs about ``fields``."""

    @wraps(call)
    def told(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with about(**fields):
            return call(*args, **kwargs)

    return told


def write_log(log_format: LogFormat, *, level: int = logging.INFO, has_streams: bool = False) -> None:
    """Log to stderr from ``level`` on; lines of text name the stream where the process ``has_streams``.

    In JSON an error that nobody catches is a line like any other, and so are warnings of libraries.
    """
    handler = logging.StreamHandler()
    handler.addFilter(_with_stream)
    handler.setFormatter(formatter(log_format, has_streams=has_streams))
    logging.basicConfig(level=level, handlers=[handler])
    if log_format == "json":
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
        threading.excepthook = lambda args: _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)


def formatter(log_format: LogFormat, *, has_streams: bool = False) -> logging.Formatter:
    """How a record becomes a line."""
    if log_format == "text":
        return logging.Formatter(_TEXT_OF_STREAMS if has_streams else _TEXT)
    return stdlib.ProcessorFormatter(
        foreign_pre_chain=[_of_record, contextvars.merge_contextvars],
        processors=[
            stdlib.ProcessorFormatter.remove_processors_meta,
            processors.format_exc_info,
            processors.StackInfoRenderer(),
            processors.EventRenamer("msg"),
            processors.JSONRenderer(),
        ],
    )


def tell_error(text: str) -> None:
    """Say that a command has failed: on stderr, as a line of the log where that is JSON."""
    if any(isinstance(handler.formatter, stdlib.ProcessorFormatter) for handler in logging.getLogger().handlers):
        _LOG.error(text)
    else:
        print(text, file=sys.stderr)


def said_in(line: str) -> str:
    """The message of a ``line`` of a log, be it text or JSON."""
    text = line.strip()
    if not text.startswith("{"):
        return text
    try:
        return str(json.loads(text).get("msg", ""))
    except (ValueError, AttributeError):
        return ""


def _of_record(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Fields of the record, with its own time."""
    record: logging.LogRecord = event["_record"]
    ts = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return {"ts": ts, "level": record.levelname, "logger": record.name, **event}


def _with_stream(record: logging.LogRecord) -> bool:
    record.stream = contextvars.get_contextvars().get("stream", "-")
    return True


def _log_uncaught(kind: type[BaseException], error: BaseException | None, traceback: TracebackType | None) -> None:
    if error is not None and kind is not SystemExit:
        _LOG.critical("nobody caught: %s", error, exc_info=(kind, error, traceback))
