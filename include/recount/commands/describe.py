"""``recount describe``: the declared topologies in words or as diagrams."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from recount.core.describe import describe as in_words
from recount.core.describe import mermaid as as_mermaid
from recount.core.registry import DEFAULT_MODULES, declared


def describe(
    stream: Annotated[str | None, typer.Argument(help="One stream; without it, all that are declared.")] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print Mermaid flowcharts instead of text.")] = False,
) -> None:
    """Print the operators of the declared topologies."""
    declarations = declared(os.environ.get("RECOUNT_TOPOLOGIES", DEFAULT_MODULES))
    names = [stream] if stream else sorted(declarations.topologies)
    topologies = [declarations.topology(name) for name in names]
    typer.echo("\n\n".join(as_mermaid(one) if mermaid else in_words(one) for one in topologies))
