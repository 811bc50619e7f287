"""Each scene without a mutant: the operators say what the interpreter says, up to the boundary of every rule."""

from __future__ import annotations

import pytest
from tests.mutants.runs import by_engine, by_interpreter, differences
from tests.mutants.scenes import names, scene

UNEQUAL = {
    "versioned table, held back": "the last changes are still held by one of them",
    "a partition that comes back": "results leave later by the interpreter",
    "avro values": "the interpreter reads no registry",
    "protobuf values": "the interpreter reads no registry",
}


@pytest.mark.parametrize("name", [name for name in names() if name not in UNEQUAL])
def test_the_operators_are_the_interpreter(name: str) -> None:
    assert differences(by_engine(scene(name), restarts=True).told, by_interpreter(scene(name))) == []
