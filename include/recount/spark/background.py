"""Work that goes on beside the batches."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

Result = TypeVar("Result")


def in_background(name: str, work: Callable[[], Result]) -> Future[Result]:
    """Begin ``work`` in a thread of its own; its result, or what it raised, is in the future."""
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
    try:
        return pool.submit(copy_context().run, work)
    finally:
        pool.shutdown(wait=False)
