"""The extras of the package, ``recount[airflow]`` and so on: which library each brings, and what to say without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import MappingProxyType

from recount.core.errors import Terminal

LIBRARIES = MappingProxyType(
    {
        "airflow": ("airflow", "asgiref", "grandalf", "itsdangerous", "pygal", "sqlalchemy"),
        "fab": ("flask_appbuilder",),
        "kubernetes": ("kubernetes",),
        "audit": ("great_expectations",),
        "serve": ("fastapi", "limits", "starlette", "uvicorn"),
        "registry": ("fastavro", "authlib"),
        "local": ("httpx",),
    }
)
"""By extra, the libraries that only it brings, as they are imported."""


class MissingExtra(Terminal, ImportError):
    """A part of Recount was asked for whose libraries are not installed."""

    def __init__(self, extra: str, library: str) -> None:
        self.extra = extra
        super().__init__(
            f"the extra {extra!r} of recount is not installed",
            given=f"no library {library}",
            expected=f"the libraries of recount[{extra}]",
            remedy=f"pip install 'recount[{extra}]'",
        )


def require_extra(extra: str) -> None:
    """Raise ``MissingExtra`` unless every library of ``extra`` is installed; imports none of them."""
    for library in LIBRARIES[extra]:
        if find_spec(library) is None:
            raise MissingExtra(extra, library)


@contextmanager
def missing_extras_named() -> Iterator[None]:
    """Turn the failed import of a library of an extra into ``MissingExtra``; any other failure passes as it is."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        extra = next((name for name, libraries in LIBRARIES.items() if library in libraries), None)
        if extra is None:
            raise
        raise MissingExtra(extra, library) from error
