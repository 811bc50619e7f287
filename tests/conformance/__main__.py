"""``make conformance``: cases from the tests of Kafka Streams, run and judged."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from tests.conformance.operators import by_operators
from tests.conformance.outcome import interpreted
from tests.conformance.report import Run, verdicts


class Engine(StrEnum):
    """Which implementation runs the cases."""

    interpreter = "interpreter"
    operators = "operators"


_RUNS: dict[Engine, Run] = {Engine.interpreter: interpreted, Engine.operators: by_operators}


def conformance(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the JSON case files.")],
    engine: Annotated[Engine, typer.Option(help="Which implementation runs the cases.")] = Engine.interpreter,
    case: Annotated[str | None, typer.Option(help="Run the case with this id only.")] = None,
) -> None:
    """Run cases from the tests of Kafka Streams; exit code 1 where one fails."""
    counts: Counter[str] = Counter()
    for verdict in verdicts(folder, run=_RUNS[engine], only=case):
        counts[verdict.result] += 1
        if verdict.result != "passed":
            typer.echo(str(verdict))
    typer.echo(f"{counts['passed']} passed, {counts['failed']} failed, {counts['not expressible']} not expressible")
    raise typer.Exit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    typer.run(conformance)
