"""The rules of the stream, each made wrong: a bound a millisecond off, ``<`` for ``<=``, a default swapped."""

from __future__ import annotations

from pathlib import Path

from tests.mutants.declare_mutants import declare_mutants
from tests.mutants.engine_mutants import engine_mutants
from tests.mutants.format_mutants import format_mutants
from tests.mutants.mutant import Mutant
from tests.mutants.operator_mutants import operator_mutants


def mutants(root: Path) -> list[Mutant]:
    """All of them; ``root`` holds the package. Raises ``LookupError`` where the code of one is not there."""
    found = [*declare_mutants(), *engine_mutants(), *format_mutants(), *operator_mutants()]
    for mutant in found:
        mutant.apply((root / mutant.file).read_text())
    return found
