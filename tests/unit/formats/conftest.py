"""A schema registry for the encoders of sinks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.formats.served_registry import ServedRegistry, served

from recount.runtime.errors import VARIABLE


@pytest.fixture(scope="module")
def registry() -> Iterator[ServedRegistry]:
    """An empty one, known to this process."""
    with served() as registry, pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, registry.address)
        yield registry
