"""``make conformance``: cases from the tests of Kafka Streams, run and judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from tests.conformance.outcome import interpreted
from tests.conformance.report import Run, verdicts


class Engine(StrEnum):
    """Which implementation runs the cases."""

    interpreter = "interpreter"
    spark = "spark"


def conformance(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the JSON case files.")],
    engine: Annotated[Engine, typer.Option(help="Which implementation runs the cases.")] = Engine.interpreter,
    case: Annotated[str | None, typer.Option(help="Run the case with this id only.")] = None,
) -> None:
    """Run cases from the tests of Kafka Streams; exit code 1 where one fails."""
    counts: Counter[str] = Counter()
    with _running(engine) as run:
        for verdict in verdicts(folder, run=run, only=case):
            counts[verdict.result] += 1
            if verdict.result != "passed":
                typer.echo(str(verdict))
    typer.echo(f"{counts['passed']} passed, {counts['failed']} failed, {counts['not expressible']} not expressible")
    raise typer.Exit(1 if counts["failed"] else 0)


@contextmanager
def _running(engine: Engine) -> Iterator[Run]:
    if engine is Engine.interpreter:
        yield interpreted
        return
    from tests.conformance.spark_engine import local_engine

    with local_engine() as spark:
        yield spark.run


if __name__ == "__main__":
    typer.run(conformance)
