"""``recount conformance``: cases from the tests of Kafka Streams, run and judged."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from recount.core.conformance.report import ENGINES, verdicts


def conformance(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the JSON case files.")],
    engine: Annotated[str, typer.Option(help="interpreter or spark.")] = "interpreter",
    case: Annotated[str | None, typer.Option(help="Run the case with this id only.")] = None,
) -> None:
    """Run cases from the tests of Kafka Streams; exit code 1 where one fails."""
    if engine not in ENGINES:
        raise typer.BadParameter(f"{engine!r} is none of {', '.join(ENGINES)}", param_hint="--engine")
    counts: Counter[str] = Counter()
    for verdict in verdicts(folder, run=ENGINES[engine], only=case):
        counts[verdict.result] += 1
        if verdict.result != "passed":
            typer.echo(str(verdict))
    typer.echo(f"{counts['passed']} passed, {counts['failed']} failed, {counts['not expressible']} not expressible")
    raise typer.Exit(1 if counts["failed"] else 0)
