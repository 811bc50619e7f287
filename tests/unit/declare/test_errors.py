"""Errors as programs get them."""

from __future__ import annotations

import pickle

import pytest

from recount.declare.functions import FunctionFailed
from recount.runtime.errors import InvalidDeclaration, RecountError, Transient


@pytest.mark.parametrize(
    "error",
    [
        Transient("the broker is away", given="127.0.0.1:1", expected="an answer", remedy="start it"),
        InvalidDeclaration("topic.name", given="", expected="a name", remedy="give it one"),
        FunctionFailed("map to n", "orders-0@1", ValueError("no")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_in_another_process(error: RecountError) -> None:
    there = pickle.loads(pickle.dumps(error))  # noqa: S301 - of our own making
    assert type(there) is type(error)
    assert (str(there), there.args, vars(there)) == (str(error), error.args, vars(error))
